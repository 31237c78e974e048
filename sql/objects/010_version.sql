{{ function('cerebro_version') }}

-- The role whose rights count; owners of runs are kept by it.
CREATE OR REPLACE FUNCTION cerebro._role() RETURNS oid
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT r.oid FROM pg_catalog.pg_roles r WHERE r.rolname = current_user
$$;
COMMENT ON FUNCTION cerebro._role() IS 'Internal: the oid of the current role.';

CREATE OR REPLACE FUNCTION cerebro._cores()
    RETURNS integer LANGUAGE plpython3u STABLE AS {{ plpython('return relay.cores()') }};
COMMENT ON FUNCTION cerebro._cores() IS 'Internal: the processor cores that the server may use.';

CREATE OR REPLACE FUNCTION cerebro._memory_mb()
    RETURNS integer LANGUAGE plpython3u STABLE AS {{ plpython('return relay.memory_mb()') }};
COMMENT ON FUNCTION cerebro._memory_mb() IS
'Internal: megabytes of memory of the server, or of the control group that it runs in.';
