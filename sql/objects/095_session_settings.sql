-- Rows of others are read by sessions that work for a caller with the settings of her own session: what a view, a policy
-- or a function in them asks about is answered as it is there. See docs/security.md.
{%- macro under_settings(statement) %}
DECLARE
    one record;
    path text;
    names text[] := '{}';
    before text[] := '{}';
BEGIN
    FOR one IN SELECT s.key, s.value FROM json_each_text($2::json) s
                WHERE s.value IS DISTINCT FROM current_setting(s.key) LOOP
        IF one.key = 'search_path' THEN
            path := one.value;
        ELSE
            names := names || one.key;
            before := before || current_setting(one.key);
            EXECUTE format('SET LOCAL %I TO %L', one.key, one.value);
        END IF;
    END LOOP;
    IF path IS NOT NULL THEN
        PERFORM set_config('search_path', path, true);
    END IF;
    {{ statement }};
    -- Here the path is still that of the caller.
    PERFORM pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);
    FOR place IN 1 .. coalesce(array_length(names, 1), 0) LOOP
        EXECUTE format('SET LOCAL %I TO %L', names[place], before[place]);
    END LOOP;
END
{%- endmacro %}
CREATE OR REPLACE FUNCTION cerebro._seen_rows(query text, settings text) RETURNS SETOF record
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
{{ under_settings('RETURN QUERY EXECUTE $1') }}
$$;
COMMENT ON FUNCTION cerebro._seen_rows(text, text) IS
'Internal: the rows of a query under settings of a session, which are an object of JSON; it computes with the rights of its caller.';

CREATE OR REPLACE FUNCTION cerebro._do_as_seen(statement text, settings text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
{{ under_settings('EXECUTE $1') }}
$$;
COMMENT ON FUNCTION cerebro._do_as_seen(text, text) IS
'Internal: runs a statement under settings of a session, which are an object of JSON; it has the rights of its caller.';

-- Servers before 9.5, and those with segments of that version, have no policies.
CREATE OR REPLACE FUNCTION cerebro._is_seen(relation oid) RETURNS boolean
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    found boolean;
BEGIN
    SELECT c.relkind NOT IN ('r', 'm') INTO found FROM pg_class c WHERE c.oid = $1;
    IF NOT found AND EXISTS (SELECT 1 FROM pg_proc p WHERE p.proname = 'row_security_active') THEN
        EXECUTE 'SELECT row_security_active($1)' INTO found USING $1;
    END IF;
    RETURN coalesce(found, false);
END
$$;
COMMENT ON FUNCTION cerebro._is_seen(oid) IS
'Internal: whether what is read of a relation depends on the session that reads it: a view, a foreign or partitioned table, or one with policies.';

-- Looks into views below views, policies, and functions that these name.
CREATE OR REPLACE FUNCTION cerebro._asks_session_user(relation oid) RETURNS boolean
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    below oid[];
    found boolean;
BEGIN
    WITH RECURSIVE read(relation) AS (
        SELECT $1
         UNION
        SELECT d.refobjid FROM read r
          JOIN pg_rewrite w ON w.ev_class = r.relation
          JOIN pg_depend d ON d.classid = 'pg_rewrite'::regclass AND d.objid = w.oid
         WHERE d.refclassid = 'pg_class'::regclass)
    SELECT array_agg(r.relation) INTO below FROM read r;
    SELECT bool_or(pg_get_viewdef(c.oid) ~* '\m(session_user|system_user)\M') INTO found
      FROM pg_class c WHERE c.oid = ANY (below) AND c.relkind = 'v';
    IF found THEN
        RETURN true;
    END IF;
    SELECT bool_or(p.prosrc ~* '\m(session_user|system_user)\M') INTO found
      FROM pg_depend d
      JOIN pg_proc p ON p.oid = d.refobjid AND p.oid >= 16384
     WHERE d.refclassid = 'pg_proc'::regclass
       AND (d.classid = 'pg_rewrite'::regclass AND d.objid IN (SELECT w.oid FROM pg_rewrite w WHERE w.ev_class = ANY (below))
         OR d.classid = to_regclass('pg_catalog.pg_policy')
            AND EXISTS (SELECT 1 FROM pg_depend o WHERE o.classid = d.classid AND o.objid = d.objid
                           AND o.refclassid = 'pg_class'::regclass AND o.refobjid = ANY (below)));
    IF found THEN
        RETURN true;
    END IF;
    IF to_regclass('pg_catalog.pg_policy') IS NOT NULL THEN
        EXECUTE $policies$SELECT bool_or(pg_get_expr(p.polqual, p.polrelid) ~* '\m(session_user|system_user)\M')
                            FROM pg_policy p WHERE p.polrelid = ANY ($1)$policies$
           INTO found USING below;
    END IF;
    RETURN coalesce(found, false);
END
$$;
COMMENT ON FUNCTION cerebro._asks_session_user(oid) IS
'Internal: whether a view or a policy shows rows by the role that has logged in.';
