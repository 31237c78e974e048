-- Training of a whole model selection table.

{{ function('cerebro_fit_multiple') }}

{{ function('cerebro_fit') }}

{{ function('cerebro_resume') }}

{{ function('cerebro_cancel') }}

{{ function('cerebro_pause') }}

{{ function('cerebro_drop_run') }}

CREATE OR REPLACE FUNCTION cerebro._vacuum(
    older_than double precision, OUT run_id bigint, OUT bytes bigint)
RETURNS SETOF record LANGUAGE plpython3u AS {{ plpython('return relay.driver("fitting.vacuum", older_than)') }};
COMMENT ON FUNCTION cerebro._vacuum(double precision) IS
'Internal: cerebro_vacuum with seconds.';

{{ head('cerebro_vacuum') }} LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
    SELECT v.run_id, v.bytes FROM cerebro._vacuum(extract(epoch FROM $1)::double precision) v
$$;
{{ comment('cerebro_vacuum') }}

{{ function('cerebro_set') }}
