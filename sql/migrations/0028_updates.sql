-- Of a round whose weights one trainer holds for all: the order of its updates, how stale they were, and how its groups
-- were chosen. counts, staleness (mean) and stalest are of the group of each place.

CREATE TABLE cerebro.catalog_updates (
    run_id        bigint NOT NULL,
    mst_key       integer NOT NULL,
    epoch         integer NOT NULL,
    round         integer NOT NULL CHECK (round BETWEEN 0 AND 10000),
    groups        integer NOT NULL CHECK (groups BETWEEN 1 AND 100000),
    momentum      double precision CHECK (momentum BETWEEN 0 AND 1),
    learning_rate double precision CHECK (learning_rate BETWEEN 0 AND 3.5e38),
    probes        text NOT NULL DEFAULT '' CONSTRAINT bounded_probes
                  CHECK (length(probes) <= 1000000 AND probes !~ '[\x01-\x08\x0b\x0c\x0e-\x1f\x7f]'),
    counts        integer[] NOT NULL CHECK (array_length(counts, 1) BETWEEN 1 AND 100000 AND array_lower(counts, 1) = 1),
    staleness     double precision[] NOT NULL,
    stalest       integer[] NOT NULL,
    updates       bytea NOT NULL,
    PRIMARY KEY (run_id, mst_key, epoch, round)
);
ALTER TABLE cerebro.catalog_updates ALTER COLUMN updates SET STORAGE EXTERNAL;
ALTER TABLE cerebro.catalog_updates OWNER TO cerebro_owner;
