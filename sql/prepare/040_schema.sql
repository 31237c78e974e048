-- Roles, the schema, and the record of the migrations.
DO $$
DECLARE
    name text;
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
    -- The owner of the catalog: what runs with its rights must not have those of a superuser.
    IF EXISTS (SELECT 1 FROM pg_catalog.pg_roles
                WHERE rolname = 'cerebro_owner' AND (rolsuper OR rolcanlogin)) THEN
        RAISE EXCEPTION USING ERRCODE = '0A000',
            MESSAGE = 'role "cerebro_owner" is a superuser or may log in; allowed: neither',
            HINT = 'ALTER ROLE cerebro_owner NOSUPERUSER NOLOGIN;';
    END IF;
    -- To tell a session where the server's socket is.
    IF EXISTS (SELECT 1 FROM pg_catalog.pg_roles WHERE rolname = 'pg_read_all_settings') THEN
        GRANT pg_read_all_settings TO cerebro_owner;
    END IF;
END
$$;

-- A schema of this name that is someone else's is left alone.
DO $$
BEGIN
    IF EXISTS (SELECT 1 FROM pg_catalog.pg_namespace WHERE nspname = 'cerebro')
        AND NOT EXISTS (SELECT 1 FROM pg_catalog.pg_tables
                        WHERE schemaname = 'cerebro' AND tablename = 'catalog_migrations')
    THEN
        RAISE EXCEPTION USING ERRCODE = '0A000',
            MESSAGE = 'schema "cerebro" exists and is not one of Cerebro-DB',
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
