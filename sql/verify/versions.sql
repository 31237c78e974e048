-- The functions live in the transaction of one verification only.
CREATE FUNCTION pg_temp.cerebro_library_versions(OUT name text, OUT version text)
    RETURNS SETOF record LANGUAGE plpython3u AS {{ relayed('verify/versions.py') }};
CREATE FUNCTION pg_temp.cerebro_surroundings(settings text, OUT name text, OUT value text, OUT warning text)
    RETURNS SETOF record LANGUAGE plpython3u AS {{ relayed('verify/surroundings.py') }};
