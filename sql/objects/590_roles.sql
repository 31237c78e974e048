-- Roles that the catalog tells of: by their numbers here, and by their names where a dump was restored.
{%- set is_here = "k.home = 'cerebro.catalog_roles'::regclass::oid" %}
DROP VIEW IF EXISTS cerebro._known_roles;
CREATE VIEW cerebro._known_roles AS
SELECT k.role, k.name, k.marker FROM cerebro.catalog_roles k WHERE {{ is_here }};
COMMENT ON VIEW cerebro._known_roles IS 'Internal: the roles that the catalog tells of.';
GRANT SELECT ON cerebro._known_roles TO cerebro_user;
ALTER VIEW cerebro._known_roles OWNER TO cerebro_owner;

-- What has a number of a role: all columns of type oid but those of relations.
CREATE OR REPLACE FUNCTION cerebro._role_columns(OUT relation regclass, OUT attribute name, OUT others text)
RETURNS SETOF record LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT c.oid::regclass, a.attname,
           -- Where it is a part of the primary key, that a row of the same key is there.
           (SELECT string_agg(format('o.%1$I = t.%1$I', p.attname), ' AND ')
              FROM pg_index i JOIN pg_attribute p ON p.attrelid = i.indrelid AND p.attnum = ANY (i.indkey::smallint[])
             WHERE i.indrelid = c.oid AND i.indisprimary AND a.attnum = ANY (i.indkey::smallint[]) AND p.attnum <> a.attnum)
      FROM pg_class c
      JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
     WHERE c.relnamespace = (SELECT n.oid FROM pg_namespace n WHERE n.nspname = 'cerebro') AND c.relkind = 'r'
       AND c.relname LIKE 'catalog\_%' AND c.relname <> 'catalog_roles'
       AND a.atttypid = 26 AND a.attname NOT LIKE '%\_oid'
     ORDER BY 1, 2
$$;
COMMENT ON FUNCTION cerebro._role_columns() IS 'Internal: the columns of the catalog that have numbers of roles.';

CREATE OR REPLACE FUNCTION cerebro._move_role(old oid, new oid) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    one record;
BEGIN
    FOR one IN SELECT * FROM cerebro._role_columns() LOOP
        -- What the other one has under the same name stays where it is.
        EXECUTE format('UPDATE %s t SET %I = $2 WHERE t.%I = $1', one.relation, one.attribute, one.attribute)
             || CASE WHEN one.others IS NULL THEN ''
                     ELSE format(' AND NOT EXISTS (SELECT 1 FROM %s o WHERE o.%I = $2 AND %s)',
                                 one.relation, one.attribute, one.others) END
          USING $1, $2;
    END LOOP;
END
$$;
COMMENT ON FUNCTION cerebro._move_role(oid, oid) IS 'Internal: gives rows of the catalog another number of a role.';

-- A number that no role has, as servers count from below.
CREATE OR REPLACE FUNCTION cerebro._free_number() RETURNS oid
LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
    SELECT (4294967295 - g)::oid FROM generate_series(0, 1000000) g
     WHERE NOT EXISTS (SELECT 1 FROM pg_roles r WHERE r.oid = (4294967295 - g)::oid)
       AND NOT EXISTS (SELECT 1 FROM cerebro.catalog_roles k WHERE k.role = (4294967295 - g)::oid)
     ORDER BY g LIMIT 1
$$;
COMMENT ON FUNCTION cerebro._free_number() IS 'Internal: a number for what belonged to a role that is not here.';

-- After a restore each number becomes that of the role of the same name here; after REASSIGN OWNED rows follow the mark;
-- after ALTER ROLE ... RENAME the name is written down.
CREATE OR REPLACE FUNCTION cerebro._adopt() RETURNS integer
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    here oid := 'cerebro.catalog_roles'::regclass::oid;
    k record;
    one record;
    holder record;
    number oid;
    changed integer := 0;
BEGIN
    IF pg_is_in_recovery() OR NOT EXISTS (
        SELECT 1 FROM cerebro.catalog_roles c
          LEFT JOIN pg_roles r ON r.oid = c.role
          LEFT JOIN pg_class m ON m.oid = c.marker
         -- Where a mark has gone, another role may make a view of its name: whose that is is no matter then, nor after a restore.
         WHERE c.home <> here OR r.rolname <> c.name OR m.relowner <> c.role OR c.mark <> '' AND m.oid IS NULL) THEN
        RETURN 0;
    END IF;
    LOCK TABLE cerebro.catalog_roles IN SHARE ROW EXCLUSIVE MODE;
    IF EXISTS (SELECT 1 FROM cerebro.catalog_roles c WHERE c.home <> here) THEN
        -- Numbers of another cluster may be those of others here: first none of them is anybody's.
        FOR one IN SELECT * FROM cerebro._role_columns() LOOP
            FOR k IN EXECUTE format('SELECT DISTINCT t.%I AS role FROM %s t', one.attribute, one.relation) LOOP
                IF NOT EXISTS (SELECT 1 FROM cerebro.catalog_roles c WHERE c.role = k.role) THEN
                    INSERT INTO cerebro.catalog_roles (role, name, home)
                    VALUES (k.role, format('role %s of another server', k.role), 0);
                END IF;
            END LOOP;
        END LOOP;
        FOR k IN SELECT c.role FROM cerebro.catalog_roles c WHERE c.home <> here ORDER BY 1 LOOP
            number := cerebro._free_number();
            PERFORM cerebro._move_role(k.role, number);
            UPDATE cerebro.catalog_roles SET role = number WHERE role = k.role;
        END LOOP;
        -- Nor do tables have the numbers that they had.
        UPDATE cerebro.catalog_runs r
           SET source_oid = coalesce(cerebro._relation(r.source_table), 0::oid),
               validation_oid = CASE WHEN r.validation_oid IS NOT NULL
                                     THEN coalesce(cerebro._relation(r.validation_table), 0::oid) END,
               source_print = CASE WHEN r.status = 'finished' THEN r.source_print ELSE 'restored' END,
               validation_print = CASE WHEN r.status = 'finished' OR r.validation_print IS NULL THEN r.validation_print
                                       ELSE 'restored' END;
    END IF;
    FOR k IN SELECT c.* FROM cerebro.catalog_roles c ORDER BY c.role LOOP
        number := k.role;
        IF k.home <> here THEN
            -- Where the owner of a mark was missing, it belongs to whoever restored it.
            SELECT r.oid, r.rolname, r.rolname = k.name OR NOT r.rolsuper AND r.oid <> (
                       SELECT o.relowner FROM pg_class o WHERE o.oid = here) AS is_known
              INTO holder
              FROM pg_class m JOIN pg_roles r ON r.oid = m.relowner
             WHERE k.mark <> '' AND m.relname = k.mark
               AND m.relnamespace = (SELECT n.oid FROM pg_namespace n WHERE n.nspname = 'cerebro_states');
            IF NOT FOUND OR NOT holder.is_known THEN
                SELECT r.oid, r.rolname INTO holder FROM pg_roles r WHERE r.rolname = k.name;
            END IF;
            number := coalesce(holder.oid, k.role);
        ELSIF EXISTS (SELECT 1 FROM pg_class m WHERE m.oid = k.marker AND m.relowner <> k.role) THEN
            SELECT m.relowner INTO number FROM pg_class m WHERE m.oid = k.marker;
        END IF;
        IF number <> k.role THEN
            changed := changed + 1;
            PERFORM cerebro._move_role(k.role, number);
            IF EXISTS (SELECT 1 FROM cerebro.catalog_roles c WHERE c.role = number) THEN
                IF NOT cerebro._is_told_of(k.role) THEN
                    DELETE FROM cerebro.catalog_roles WHERE role = k.role;
                ELSE  -- names that both have: what is left is nobody's
                    UPDATE cerebro.catalog_roles SET mark = '', marker = 0, home = here WHERE role = k.role;
                END IF;
                CONTINUE;
            END IF;
            UPDATE cerebro.catalog_roles SET role = number WHERE role = k.role;
        END IF;
        UPDATE cerebro.catalog_roles c
           SET home = here, name = coalesce((SELECT r.rolname FROM pg_roles r WHERE r.oid = number), c.name),
               mark = CASE WHEN m.oid IS NULL THEN '' ELSE c.mark END, marker = coalesce(m.oid, 0::oid)
          FROM (SELECT 1) one
          LEFT JOIN pg_class m ON m.relname = k.mark AND k.mark <> '' AND m.relowner = number
               AND m.relnamespace = (SELECT n.oid FROM pg_namespace n WHERE n.nspname = 'cerebro_states')
         WHERE c.role = number;
    END LOOP;
    RETURN changed;
END
$$;
COMMENT ON FUNCTION cerebro._adopt() IS
'Internal: finds the roles of a catalog that was restored from a dump, or whose roles were renamed or have given away what they own.';

CREATE OR REPLACE FUNCTION cerebro._is_told_of(role oid) RETURNS boolean
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    one record;
    found boolean;
BEGIN
    FOR one IN SELECT * FROM cerebro._role_columns() LOOP
        EXECUTE format('SELECT EXISTS (SELECT 1 FROM %s t WHERE t.%I = $1)', one.relation, one.attribute) INTO found USING $1;
        IF found THEN
            RETURN true;
        END IF;
    END LOOP;
    RETURN false;
END
$$;
COMMENT ON FUNCTION cerebro._is_told_of(oid) IS 'Internal: whether a row of the catalog has a number of a role.';

CREATE OR REPLACE FUNCTION cerebro._relation(told text) RETURNS oid
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT c.oid FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
     WHERE quote_ident(n.nspname) || '.' || quote_ident(c.relname) = $1
$$;
COMMENT ON FUNCTION cerebro._relation(text) IS 'Internal: the number of a table whose name the catalog has.';

-- Writes down the name of a role, and its mark if that belongs to it.
CREATE OR REPLACE FUNCTION cerebro._know_role(role oid, mark name) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp SET lock_timeout = '2s' AS $$
DECLARE
    here oid := 'cerebro.catalog_roles'::regclass::oid;
    view_of oid;
BEGIN
    IF EXISTS (SELECT 1 FROM cerebro.catalog_roles c WHERE c.home <> here) THEN
        PERFORM cerebro._adopt();
    END IF;
    SELECT m.oid INTO view_of FROM pg_class m
     WHERE m.relname = $2 AND m.relowner = $1 AND m.relkind = 'v' AND m.relname LIKE 'owner\_%'
       AND m.relnamespace = (SELECT n.oid FROM pg_namespace n WHERE n.nspname = 'cerebro_states');
    IF NOT EXISTS (SELECT 1 FROM cerebro.catalog_roles c WHERE c.role = $1) THEN
        INSERT INTO cerebro.catalog_roles (role, name, home)
        SELECT r.oid, r.rolname, here FROM pg_roles r WHERE r.oid = $1;
    END IF;
    IF view_of IS NOT NULL THEN
        UPDATE cerebro.catalog_roles c SET mark = $2, marker = view_of
         WHERE c.role = $1 AND NOT EXISTS (SELECT 1 FROM pg_class m WHERE m.oid = c.marker);
    END IF;
EXCEPTION WHEN unique_violation OR lock_not_available THEN
    -- By another session meanwhile. Whoever has the role written down in a transaction that has not ended, such as one that
    -- grants it a model, keeps it from nothing: who writes a row of the role next has it written down.
    NULL;
END
$$;
COMMENT ON FUNCTION cerebro._know_role(oid, name) IS
'Internal: writes down the name of a role that the catalog tells of. Only the owner of the catalog may call it.';

-- Whose mark it is says which role: so nobody has others written down.
CREATE OR REPLACE FUNCTION cerebro._know_mark(mark name) RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    number oid;
BEGIN
    SELECT m.relowner INTO number FROM pg_class m
     WHERE m.relname = $1 AND m.relnamespace = (SELECT n.oid FROM pg_namespace n WHERE n.nspname = 'cerebro_states');
    PERFORM cerebro._know_role(number, $1);
    PERFORM 1 FROM cerebro.catalog_roles c WHERE c.role = number AND c.mark = $1;
    RETURN FOUND;
END
$$;
COMMENT ON FUNCTION cerebro._know_mark(name) IS 'Internal: writes down the name of a role by its mark; false where the role has another one.';

CREATE OR REPLACE FUNCTION cerebro._note_role() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    number oid;
BEGIN
    EXECUTE format('SELECT ($1).%I', TG_ARGV[0]) INTO number USING NEW;
    PERFORM 1 FROM cerebro._known_roles k WHERE k.role = number;
    IF NOT FOUND THEN
        PERFORM cerebro._know_role(number, NULL);
    END IF;
    RETURN NEW;
END
$$;
COMMENT ON FUNCTION cerebro._note_role() IS 'Internal: writes down the names of roles that rows of the catalog tell of.';

-- Runs as the caller, who gets a view of its own, which a dump gives to the role of that name; which DROP ROLE asks about,
-- and REASSIGN OWNED gives to another role.
CREATE OR REPLACE FUNCTION cerebro._mark_role() RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
{%- if dialect.triggers_write %}
DECLARE
    number oid := cerebro._role();
    marked oid;
    mark   name;
BEGIN
    SELECT k.marker INTO marked FROM cerebro._known_roles k JOIN pg_class m ON m.oid = k.marker WHERE k.role = number;
    IF NOT FOUND AND has_schema_privilege('cerebro_states', 'CREATE') THEN
        mark := 'owner_' || md5(number || '/' || random() || '/' || clock_timestamp());
        EXECUTE format('CREATE VIEW cerebro_states.%I AS SELECT NULL::integer AS nothing WHERE false', mark);
        EXECUTE format('COMMENT ON VIEW cerebro_states.%I IS %L', mark,
                       'Cerebro-DB: whoever owns this owns the runs and models of its role');
        PERFORM 1 FROM pg_class m WHERE m.relname = mark AND m.relowner = number
            AND m.relnamespace = (SELECT n.oid FROM pg_namespace n WHERE n.nspname = 'cerebro_states');
        -- Somebody's event trigger may give away what is made.
        IF NOT FOUND OR NOT cerebro._know_mark(mark) THEN
            EXECUTE format('DROP VIEW cerebro_states.%I', mark);
        END IF;
    END IF;
END
{%- else %}
BEGIN
END
{%- endif %}
$$;
COMMENT ON FUNCTION cerebro._mark_role() IS 'Internal: makes the view that tells who owns what belongs to the caller, where there is none.';

-- As people see a role, one that is not here, too.
CREATE OR REPLACE FUNCTION cerebro._role_name(role oid) RETURNS name
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
{%- if dialect.functions_read_tables %}
    SELECT coalesce((SELECT r.rolname FROM pg_roles r WHERE r.oid = $1),
                    (SELECT (left(k.name, 46) || ' (unknown role)')::name FROM cerebro._known_roles k WHERE k.role = $1),
                    pg_get_userbyid($1))
{%- else %}
    SELECT pg_get_userbyid($1)
{%- endif %}
$$;
COMMENT ON FUNCTION cerebro._role_name(oid) IS 'Internal: the name of a role, also of one that is not here any more.';

{{ head('cerebro_reassign_owned') }}
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    old oid;
    new oid;
    one record;
    rows bigint := 0;
    moved bigint;
BEGIN
    IF NOT (SELECT r.rolsuper FROM pg_roles r WHERE r.rolname = current_user) THEN
        RAISE EXCEPTION USING ERRCODE = '42501',
            MESSAGE = format('cerebro_reassign_owned: role "%s" is no superuser; allowed: superusers', current_user),
            HINT = 'what belongs to a role can be read by the role that gets it';
    END IF;
    PERFORM cerebro._adopt();
    SELECT r.oid INTO new FROM pg_roles r WHERE r.rolname = $2;
    IF new IS NULL THEN
        RAISE EXCEPTION USING ERRCODE = CASE WHEN $2 IS NULL THEN '22023' ELSE '42704' END,
            MESSAGE = format('new_owner: got %s; there is no role of that name', coalesce(quote_literal($2), 'NULL')),
            HINT = 'CREATE ROLE makes it; give the name as it is, without quotes';
    END IF;
    SELECT k.role INTO old FROM cerebro.catalog_roles k LEFT JOIN pg_roles r ON r.oid = k.role
     WHERE coalesce(r.rolname, k.name) = $1 ORDER BY (r.oid IS NULL) = ($1 = $2) DESC, k.role DESC LIMIT 1;
    IF old IS NULL THEN
        SELECT r.oid INTO old FROM pg_roles r WHERE r.rolname = $1;
    END IF;
    IF old IS NULL THEN
        RAISE EXCEPTION USING ERRCODE = CASE WHEN $1 IS NULL THEN '22023' ELSE '42704' END,
            MESSAGE = format('owner: got %s; the catalog has nothing of a role of that name', coalesce(quote_literal($1), 'NULL')),
            HINT = 'cerebro doctor tells what has no owner; SELECT DISTINCT owner FROM cerebro.runs';
    END IF;
    IF old = new THEN
        RETURN 0;
    END IF;
    PERFORM cerebro._know_role(new, NULL);
    FOR one IN SELECT * FROM cerebro._role_columns() WHERE attribute = 'owner' LOOP
        EXECUTE format('SELECT count(*) FROM %s t WHERE t.owner = $1', one.relation) INTO moved USING old;
        rows := rows + moved;
    END LOOP;
    PERFORM cerebro._move_role(old, new);
    FOR one IN SELECT * FROM cerebro._role_columns() WHERE attribute = 'owner' LOOP
        EXECUTE format('SELECT count(*) FROM %s t WHERE t.owner = $1', one.relation) INTO moved USING old;
        rows := rows - moved;
        IF moved > 0 THEN
            RAISE WARNING '% rows of % stay: role "%" has others of the same names', moved, one.relation, $2
                USING HINT = 'rename or drop these, and call the function again';
        END IF;
    END LOOP;
    DELETE FROM cerebro.catalog_roles k
     WHERE k.role = old AND NOT cerebro._is_told_of(k.role) AND NOT EXISTS (SELECT 1 FROM pg_roles r WHERE r.oid = k.role);
    RETURN rows;
END
$$;
{{ comment('cerebro_reassign_owned') }}
{% for signature in ['_adopt()', '_know_role(oid, name)', '_know_mark(name)'] %}
ALTER FUNCTION cerebro.{{ signature }} OWNER TO cerebro_owner;
{%- endfor %}

DO $triggers$
DECLARE
    one record;
BEGIN
    FOR one IN SELECT * FROM cerebro._role_columns() LOOP
        EXECUTE format('DROP TRIGGER IF EXISTS %I ON %s', 'note_' || one.attribute, one.relation);
{%- if dialect.triggers_write %}
        EXECUTE format('CREATE TRIGGER %I BEFORE INSERT ON %s FOR EACH ROW EXECUTE PROCEDURE cerebro._note_role(%L)',
                       'note_' || one.attribute, one.relation, one.attribute);
{%- endif %}
    END LOOP;
END
$triggers$;

-- The roles that rows tell of already.
DO $known$
DECLARE
    one record;
    known record;
BEGIN
    IF EXISTS (SELECT 1 FROM cerebro.catalog_roles k WHERE NOT {{ is_here }}) THEN
        PERFORM cerebro._adopt();
    END IF;
    FOR one IN SELECT * FROM cerebro._role_columns() LOOP
        -- Not in one statement: a function may not write where the rows of a table lie on segments.
        FOR known IN EXECUTE format('SELECT DISTINCT t.%I AS role FROM %s t', one.attribute, one.relation) LOOP
            PERFORM cerebro._know_role(known.role, NULL);
        END LOOP;
    END LOOP;
    PERFORM cerebro._adopt();
END
$known$;

{% if dialect.triggers_write -%}
-- A restore ends with filling this: it has the roles found, before anybody looks.
DROP MATERIALIZED VIEW IF EXISTS cerebro._restored;
CREATE MATERIALIZED VIEW cerebro._restored AS SELECT cerebro._adopt() AS changed;
ALTER MATERIALIZED VIEW cerebro._restored OWNER TO cerebro_owner;
COMMENT ON MATERIALIZED VIEW cerebro._restored IS
'Internal: filled by a restore, which finds the roles of the catalog that way.';
{% endif -%}
