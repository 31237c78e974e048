-- Functions are for members of cerebro_user, and for nobody else; one is for other functions only.
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
REVOKE ALL ON FUNCTION cerebro._know_functions(text) FROM cerebro_user;
GRANT EXECUTE ON FUNCTION cerebro._know_functions(text) TO cerebro_owner;
