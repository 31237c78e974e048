-- How far the rows that were packed or predicted by an earlier encoding had moved from those that it was computed from:
-- an element of each array for each column.

CREATE TABLE cerebro.catalog_drift (
    drift_id        bigserial PRIMARY KEY,
    owner           oid NOT NULL DEFAULT cerebro._role(),
    recorded        timestamptz NOT NULL DEFAULT clock_timestamp()
                    CHECK (recorded BETWEEN '2000-01-01' AND '3000-01-01'),
    kind            text NOT NULL CHECK (kind IN ('packing', 'validation', 'prediction')),
    job_id          bigint,
    encoding_of     text NOT NULL CHECK (length(encoding_of) <= 1000 AND encoding_of !~ '[\x01-\x1f\x7f]'),
    source_table    text NOT NULL CHECK (length(source_table) <= 1000),
    output_table    text NOT NULL CHECK (length(output_table) <= 1000),
    num_rows        bigint NOT NULL CHECK (num_rows >= 0),
    column_names    text[] NOT NULL CHECK (array_ndims(column_names) = 1 AND array_lower(column_names, 1) = 1
                                           AND array_upper(column_names, 1) <= 10000),
    encodings       text[] NOT NULL CHECK (array_dims(encodings) = array_dims(column_names)),
    missing         bigint[] NOT NULL CHECK (array_dims(missing) = array_dims(column_names)),
    unseen          bigint[] NOT NULL CHECK (array_dims(unseen) = array_dims(column_names)),
    trained_missing double precision[] NOT NULL CHECK (array_dims(trained_missing) = array_dims(column_names)),
    trained_unseen  double precision[] NOT NULL CHECK (array_dims(trained_unseen) = array_dims(column_names)),
    shifts          double precision[] NOT NULL CHECK (array_dims(shifts) = array_dims(column_names))
);
ALTER TABLE cerebro.catalog_drift OWNER TO cerebro_owner;
GRANT USAGE ON SEQUENCE cerebro.catalog_drift_drift_id_seq TO cerebro_user;
