"""The statements of the installer that are not part of an installation's script."""

from __future__ import annotations

# The same lock as in sql/prepare/010_begin.sql, and as long waited for.
LOCK = """
SET LOCAL lock_timeout = '60s';
LOCK TABLE pg_catalog.pg_user_mapping IN SHARE UPDATE EXCLUSIVE MODE;
SET LOCAL lock_timeout = 0
"""

INSTALLED = """
SELECT current_database(),
       EXISTS (SELECT 1 FROM pg_catalog.pg_tables
                WHERE schemaname = 'cerebro' AND tablename = 'catalog_migrations')
"""

SUPERUSER = "SELECT current_user, current_setting('is_superuser')"

VERSION = "SELECT cerebro.cerebro_version()"

LIBRARY_VERSIONS = "SELECT name, version FROM pg_temp.cerebro_library_versions()"

MISSING_FUNCTIONS = """
SELECT name FROM unnest({names}) AS name
 WHERE NOT EXISTS (SELECT 1 FROM pg_catalog.pg_proc p
                     JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace
                    WHERE n.nspname = 'cerebro' AND p.proname = name)
 ORDER BY name
"""

RUNS_TABLE = """
SELECT 1 FROM pg_catalog.pg_tables WHERE schemaname = 'cerebro' AND tablename = 'catalog_runs'
"""

NUMBER_OF_RUNS = "SELECT count(*) FROM cerebro.catalog_runs"

# What DROP SCHEMA ... CASCADE would take along: dependents, and dependents of dependents. A view
# is found through its rule, a default and a constraint through their table.
DEPENDENT = """
WITH RECURSIVE dependent (classid, objid, objsubid) AS (
    SELECT 'pg_catalog.pg_namespace'::regclass::oid, oid, 0
      FROM pg_catalog.pg_namespace WHERE nspname IN ('cerebro', 'cerebro_states')
    UNION
    SELECT owned.classid, owned.objid, owned.objsubid
      FROM dependent
      JOIN pg_catalog.pg_depend d
        ON d.refclassid = dependent.classid AND d.refobjid = dependent.objid
       AND dependent.objsubid IN (0, d.refobjsubid)
      LEFT JOIN pg_catalog.pg_rewrite r
        ON d.classid = 'pg_catalog.pg_rewrite'::regclass AND r.oid = d.objid
     CROSS JOIN LATERAL (
        SELECT d.classid, d.objid, d.objsubid WHERE r.oid IS NULL
        UNION ALL
        SELECT 'pg_catalog.pg_class'::regclass::oid, r.ev_class, 0 WHERE r.oid IS NOT NULL
     ) AS owned
     WHERE d.deptype IN ('n', 'a', 'i')
)
SELECT DISTINCT o.type, o.identity
  FROM dependent, LATERAL pg_catalog.pg_identify_object(classid, objid, objsubid) AS o
 WHERE o.type NOT IN ('type', 'index', 'toast table', 'schema')
   AND o.identity !~ '(^|on |for )(cerebro|cerebro_states)[.]'
   AND o.identity !~ '(^|on |for )pg_toast[.]'
 ORDER BY o.type, o.identity
"""

UNINSTALL = """
SET LOCAL client_min_messages = warning;
DROP SCHEMA IF EXISTS cerebro_states CASCADE;
DROP SCHEMA cerebro CASCADE;

DO $$
DECLARE
    path text;
BEGIN
    SELECT substring(entry from '^search_path=(.*)$') INTO path
      FROM pg_catalog.pg_db_role_setting s, unnest(s.setconfig) AS entry
     WHERE s.setdatabase = (SELECT oid FROM pg_catalog.pg_database
                             WHERE datname = current_database())
       AND s.setrole = 0 AND entry LIKE 'search_path=%';
    path := regexp_replace(path, '(^|,)\\s*cerebro\\s*(?=,|$)', '');
    path := regexp_replace(path, '^\\s*,\\s*', '');
    IF path = '' OR path = (SELECT CASE WHEN source = 'configuration file' THEN reset_val
                                        ELSE boot_val END
                              FROM pg_catalog.pg_settings WHERE name = 'search_path') THEN
        EXECUTE format('ALTER DATABASE %I RESET search_path', current_database());
    ELSIF path IS NOT NULL THEN
        PERFORM set_config('search_path', path, true);
        EXECUTE format('ALTER DATABASE %I SET search_path FROM CURRENT', current_database());
    END IF;
END
$$;

-- The roles belong to all databases: they go with the last use of them.
DO $$
DECLARE
    name text;
BEGIN
    FOREACH name IN ARRAY ARRAY['cerebro_admin', 'cerebro_user', 'cerebro_owner'] LOOP
        IF NOT EXISTS (SELECT 1 FROM pg_catalog.pg_shdepend d
                         JOIN pg_catalog.pg_roles r ON r.oid = d.refobjid
                        WHERE d.refclassid = 'pg_catalog.pg_authid'::regclass
                          AND r.rolname = name)
            AND NOT EXISTS (SELECT 1 FROM pg_catalog.pg_auth_members m
                              JOIN pg_catalog.pg_roles r ON r.oid = m.roleid
                             WHERE r.rolname = name)
        THEN
            EXECUTE format('DROP ROLE IF EXISTS %I', name);
        END IF;
    END LOOP;
END
$$;
"""
