CREATE OR REPLACE FUNCTION cerebro.cerebro_version()
    RETURNS text LANGUAGE plpython3u STABLE AS {{ udf('cerebro_version') }};
COMMENT ON FUNCTION cerebro.cerebro_version() IS
    'The version of Cerebro-DB that runs in this server';
