-- Functions are for members of cerebro_user, and for nobody else.
DO $$
DECLARE
    function regprocedure;
BEGIN
    FOR function IN
        SELECT oid FROM pg_catalog.pg_proc WHERE pronamespace = (SELECT oid FROM pg_catalog.pg_namespace WHERE nspname = 'cerebro')
    LOOP
        EXECUTE format('REVOKE ALL ON FUNCTION %s FROM PUBLIC', function);
        EXECUTE format('GRANT EXECUTE ON FUNCTION %s TO cerebro_user', function);
    END LOOP;
END
$$;

-- There the next number of a sequence needs the right to update it.
DO $$
BEGIN
    IF {{ has_segments }} THEN
        GRANT UPDATE ON SEQUENCE cerebro.catalog_runs_run_id_seq, cerebro.catalog_requests_request_id_seq
            TO cerebro_user;
    END IF;
END
$$;
