-- Drift: how far rows have moved from those that their encoding was computed from.

CREATE OR REPLACE VIEW cerebro._drift WITH (security_barrier) AS
SELECT d.* FROM cerebro.catalog_drift d
 WHERE pg_has_role(d.owner, 'USAGE') OR pg_has_role('cerebro_admin', 'USAGE');
COMMENT ON VIEW cerebro._drift IS 'Internal: the drift that the caller may see.';
GRANT SELECT ON cerebro._drift TO cerebro_user;

CREATE OR REPLACE VIEW cerebro.drift WITH (security_barrier) AS
SELECT c.drift_id, cerebro._role_name(c.owner) AS owner, c.recorded, c.kind, c.job_id, c.encoding_of, c.source_table, c.output_table,
       c.num_rows,
       c.column_names[c.place]::name AS column_name,
       c.encodings[c.place] AS encoding,
       c.missing[c.place] AS missing_rows,
       c.missing[c.place]::double precision / nullif(c.num_rows, 0) AS missing,
       c.trained_missing[c.place] AS trained_missing,
       c.unseen[c.place] AS unseen_rows,
       c.unseen[c.place]::double precision / nullif(c.num_rows, 0) AS unseen,
       c.trained_unseen[c.place] AS trained_unseen,
       c.shifts[c.place] AS psi
  FROM (SELECT d.*, generate_series(1, array_upper(d.column_names, 1)) AS place FROM cerebro._drift d) c;
COMMENT ON VIEW cerebro.drift IS
'One row for each column of what was packed, validated or predicted by an earlier encoding: missing and unseen values beside those of the training rows, and the population stability index of numbers.';
GRANT SELECT ON cerebro.drift TO cerebro_user;
ALTER VIEW cerebro._drift OWNER TO cerebro_owner;
ALTER VIEW cerebro.drift OWNER TO cerebro_owner;
