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
