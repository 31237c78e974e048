-- Roles, the schema, and the record of the migrations.
DO $$
DECLARE
    name text;
    found record;
BEGIN
    FOREACH name IN ARRAY ARRAY['cerebro_user', 'cerebro_admin', 'cerebro_owner'] LOOP
        IF NOT EXISTS (SELECT 1 FROM pg_catalog.pg_roles WHERE rolname = name) THEN
            BEGIN
                EXECUTE format('CREATE ROLE %I NOLOGIN', name);
            EXCEPTION WHEN duplicate_object OR unique_violation THEN
                NULL;  -- made by an installation in another database meanwhile
            END;
        END IF;
    END LOOP;
    IF NOT pg_has_role('cerebro_admin', 'cerebro_user', 'MEMBER') THEN
        GRANT cerebro_user TO cerebro_admin;
    END IF;
    -- Whoever is one of these roles would have more than what the installation gives to their members.
    FOR found IN
        SELECT r.rolname, concat_ws(', ',
                   CASE WHEN r.rolsuper THEN 'SUPERUSER' END, CASE WHEN r.rolcanlogin THEN 'LOGIN' END,
                   CASE WHEN r.rolcreaterole THEN 'CREATEROLE' END, CASE WHEN r.rolcreatedb THEN 'CREATEDB' END,
                   CASE WHEN r.rolreplication THEN 'REPLICATION' END,
                   CASE WHEN (row_to_json(r) ->> 'rolbypassrls')::boolean THEN 'BYPASSRLS' END) AS has
          FROM pg_catalog.pg_roles r
         WHERE r.rolname IN ('cerebro_user', 'cerebro_admin', 'cerebro_owner') ORDER BY r.rolname
    LOOP
        IF found.has <> '' THEN
            RAISE EXCEPTION USING ERRCODE = '0A000',
                MESSAGE = format('role "%s" has the attributes %s; allowed: none', found.rolname, found.has),
                HINT = format('ALTER ROLE %s NO%s;', found.rolname, replace(found.has, ', ', ' NO'));
        END IF;
    END LOOP;
    -- What the owner of the catalog may do, its functions do for everyone, and its members could change them.
    FOR found IN
        SELECT r.rolname AS granted, m.rolname AS member
          FROM pg_catalog.pg_auth_members a
          JOIN pg_catalog.pg_roles r ON r.oid = a.roleid
          JOIN pg_catalog.pg_roles m ON m.oid = a.member
         WHERE r.rolname = 'cerebro_owner'
            OR m.rolname = 'cerebro_owner' AND r.rolname <> 'pg_read_all_settings'
         ORDER BY 1, 2
    LOOP
        RAISE EXCEPTION USING ERRCODE = '0A000',
            MESSAGE = format('role "%s" is a member of role "%s"; allowed: cerebro_owner without members, '
                             'and member of pg_read_all_settings only', found.member, found.granted),
            HINT = format('REVOKE %I FROM %I;', found.granted, found.member);
    END LOOP;
    -- To tell a session where the server's socket is.
    IF EXISTS (SELECT 1 FROM pg_catalog.pg_roles WHERE rolname = 'pg_read_all_settings') THEN
        GRANT pg_read_all_settings TO cerebro_owner;
    END IF;
END
$$;

-- A schema of these names that is something else is left alone.
DO $$
DECLARE
    other text;
BEGIN
    SELECT nspname INTO other FROM pg_catalog.pg_namespace
     WHERE nspname IN ('cerebro', 'cerebro_states')
       AND NOT EXISTS (SELECT 1 FROM pg_catalog.pg_tables
                        WHERE schemaname = 'cerebro' AND tablename = 'catalog_migrations')
     ORDER BY nspname;
    IF other IS NOT NULL THEN
        RAISE EXCEPTION USING ERRCODE = '0A000',
            MESSAGE = format('schema "%s" exists and is not one of Cerebro-DB', other),
            HINT = 'Rename or drop it: Cerebro-DB makes the schema itself.';
    END IF;
END
$$;
CREATE SCHEMA IF NOT EXISTS cerebro;
GRANT USAGE ON SCHEMA cerebro TO cerebro_user, cerebro_admin, cerebro_owner;
COMMENT ON SCHEMA cerebro IS 'Cerebro-DB: deep-learning model selection in the database';

CREATE TABLE IF NOT EXISTS cerebro.catalog_migrations (
    name     text PRIMARY KEY,
    checksum text NOT NULL,
    applied  timestamptz NOT NULL DEFAULT now()
);
COMMENT ON TABLE cerebro.catalog_migrations IS 'The migrations that made the tables of this schema; each runs once';

DO $$
DECLARE
    newer text;
BEGIN
    SELECT string_agg(name, ', ' ORDER BY name) INTO newer FROM cerebro.catalog_migrations
     WHERE NOT name = ANY ({{ migration_names | sql_array }});
    IF newer IS NOT NULL THEN
        RAISE EXCEPTION USING ERRCODE = '0A000',
            MESSAGE = format('this database has migrations that version {{ package_version }} of Cerebro-DB does not know: %s', newer),
            HINT = 'A newer version was installed here: install that one, or a later one.';
    END IF;
END
$$;
