-- The function lives in the transaction of one verification only.
CREATE FUNCTION pg_temp.cerebro_library_versions(OUT name text, OUT version text)
    RETURNS SETOF record LANGUAGE plpython3u AS {{ relayed('verify/versions.py') }};
