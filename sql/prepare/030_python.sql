-- What the server must have. The function lives in this transaction only.
CREATE FUNCTION pg_temp.cerebro_prerequisites(OUT message text, OUT hint text)
    RETURNS SETOF record LANGUAGE plpython3u AS {{ body('prepare/prerequisites.py') }};
DO $$
DECLARE
    missing record;
BEGIN
    FOR missing IN SELECT * FROM pg_temp.cerebro_prerequisites() LOOP
        RAISE EXCEPTION USING ERRCODE = '0A000', MESSAGE = missing.message, HINT = missing.hint;
    END LOOP;
END
$$;
DROP FUNCTION pg_temp.cerebro_prerequisites();
