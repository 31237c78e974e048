-- Who calls a function that writes the catalog with the rights of its owner. See docs/decisions/writing-the-catalog.md.

-- Triggers that checked what earlier versions wrote through views.
DO $triggers$
DECLARE
    one record;
BEGIN
    FOR one IN SELECT t.tgname, t.tgrelid::regclass AS relation FROM pg_catalog.pg_trigger t
                 JOIN pg_catalog.pg_class c ON c.oid = t.tgrelid
                WHERE c.relnamespace = (SELECT n.oid FROM pg_catalog.pg_namespace n WHERE n.nspname = 'cerebro')
                  AND t.tgname LIKE 'check\_%' AND NOT t.tgisinternal LOOP
        EXECUTE pg_catalog.format('DROP TRIGGER %I ON %s', one.tgname, one.relation);
    END LOOP;
END
$triggers$;

-- A function of ours writes in the transaction of its caller, as the role whose rights it has: the relay notes that for the one
-- call. Nobody else can: PL/Python is for superusers.
CREATE OR REPLACE FUNCTION cerebro._writing_role() RETURNS oid
LANGUAGE plpython3u AS {{ plpython('return relay.writing_role()') }};
COMMENT ON FUNCTION cerebro._writing_role() IS 'Internal: the role for which a function of Cerebro-DB writes at this moment; NULL for none.';

-- Variables have the collation that the caller gives an argument, so comparisons name one.
-- In a function of the owner of the catalog current_user is that owner. A statement of a session knows its role by what it
-- has logged in as, or set; a function of somebody else that calls ours might have been called by anybody, and is refused.
CREATE OR REPLACE FUNCTION cerebro._writer(context text) RETURNS oid
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    number oid;
    role   text := coalesce(nullif(current_setting('role') COLLATE "C", 'none'), session_user);
BEGIN
    IF strpos($1 COLLATE "C", chr(10)) > 0 THEN
        number := cerebro._writing_role();
        IF number IS NOT NULL THEN
            RETURN number;
        END IF;
        RAISE EXCEPTION USING ERRCODE = '42501',
            MESSAGE = 'catalog: got a call by another function; allowed: a statement of a session',
            HINT = 'functions whose names begin with cerebro_, such as cerebro.cerebro_submit, may be called anywhere';
    END IF;
    -- A server that works for the owner of a table, such as for REFRESH MATERIALIZED VIEW, refuses this.
    UNLISTEN cerebro_writer;
    SELECT r.oid INTO number FROM pg_roles r WHERE r.rolname = (role COLLATE "C")::name;
    RETURN number;
END
$$;
ALTER FUNCTION cerebro._writer(text) OWNER TO cerebro_owner;
COMMENT ON FUNCTION cerebro._writer(text) IS
'Internal: the role as which the statement of a session calls a function of the owner of the catalog. context: PG_CONTEXT of that function.';

-- What concerns everybody is checked before it is written, by a function of ours: an administrator does not go past that.
CREATE OR REPLACE FUNCTION cerebro._administrator(context text, function text, of_superusers boolean) RETURNS oid
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    number oid := cerebro._writer($1);
BEGIN
    PERFORM 1 FROM pg_roles r
      WHERE r.oid = number AND (r.rolsuper OR pg_has_role(r.oid, 'cerebro_admin', 'USAGE') AND $3 IS FALSE);
    IF NOT FOUND THEN
        RAISE EXCEPTION USING ERRCODE = '42501',
            MESSAGE = format('permission denied for what holds for the whole database: %s', left($2, 63)),
            HINT = 'members of cerebro_admin may; superusers may set ' || array_to_string({{ of_superusers | sql_array }}, ', ');
    ELSIF cerebro._writing_role() IS NULL THEN
        RAISE EXCEPTION USING ERRCODE = '42501',
            MESSAGE = format('catalog: got a statement of a session; allowed: cerebro.%s, which checks what is written', left($2, 63));
    END IF;
    RETURN number;
END
$$;
ALTER FUNCTION cerebro._administrator(text, text, boolean) OWNER TO cerebro_owner;
COMMENT ON FUNCTION cerebro._administrator(text, text, boolean) IS
'Internal: refuses who is no administrator, or no superuser, and what was not checked by a function of Cerebro-DB; returns the role that calls.';

CREATE OR REPLACE FUNCTION cerebro._stands(role oid, owner oid) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE WHEN pg_has_role($1, $2, 'USAGE') THEN 'owner' WHEN pg_has_role($1, 'cerebro_admin', 'USAGE') THEN 'administrator' END
$$;
ALTER FUNCTION cerebro._stands(oid, oid) OWNER TO cerebro_owner;
COMMENT ON FUNCTION cerebro._stands(oid, oid) IS
'Internal: how a role stands to what another one owns: owner, also with its rights, or administrator; NULL for neither.';

CREATE OR REPLACE FUNCTION cerebro._check_writer(context text, kind text, number bigint, owner oid, as_administrator boolean) RETURNS oid
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    role   oid := cerebro._writer($1);
    what   text := left($2, 63);
    stands text;
BEGIN
    IF $4 IS NOT NULL THEN
        stands := cerebro._stands(role, $4);
    END IF;
    IF stands IS NULL THEN
        RAISE EXCEPTION USING ERRCODE = '44000',
            MESSAGE = format('%s_id: got %s; you have no %s of that number', what, coalesce($3::text, 'NULL'), what);
    ELSIF stands COLLATE "C" <> 'owner' AND $5 IS NOT TRUE THEN
        RAISE EXCEPTION USING ERRCODE = '42501',
            MESSAGE = format('%s_id: got %s, a %s of another role; allowed: to stop it and to drop it', what, $3, what),
            HINT = 'Its owner, or a role that has the rights of its owner, changes what the catalog says of it.';
    END IF;
    RETURN role;
END
$$;
ALTER FUNCTION cerebro._check_writer(text, text, bigint, oid, boolean) OWNER TO cerebro_owner;
COMMENT ON FUNCTION cerebro._check_writer(text, text, bigint, oid, boolean) IS
'Internal: refuses a statement that writes what belongs to somebody else, or as an administrator what only its owner may; returns the role that calls.';
