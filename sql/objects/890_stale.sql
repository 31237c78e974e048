-- Functions of an earlier version that this one no longer has, or has with other arguments: what
-- this transaction has not written so far. Comes before the grants, which write to all.
DO $$
DECLARE
    stale record;
BEGIN
    FOR stale IN
        SELECT p.oid::regprocedure AS signature,
               CASE WHEN a.aggfnoid IS NULL THEN 'FUNCTION' ELSE 'AGGREGATE' END AS kind
          FROM pg_catalog.pg_proc p
          LEFT JOIN pg_catalog.pg_aggregate a ON a.aggfnoid = p.oid
         WHERE p.pronamespace IN (SELECT oid FROM pg_catalog.pg_namespace WHERE nspname IN ('cerebro'{{ ", 'madlib'" if madlib }}))
           AND p.xmin::text <> (txid_current() % 4294967296)::text
         ORDER BY a.aggfnoid IS NULL, p.oid DESC
    LOOP
        EXECUTE format('DROP %s %s', stale.kind, stale.signature);
    END LOOP;
END
$$;
