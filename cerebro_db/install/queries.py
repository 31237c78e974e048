"""The statements of the installer that are not part of an installation's script."""

from __future__ import annotations

# What ALTER DATABASE, or ALTER ROLE ALL, has set for all roles in the current database; a query of one text.
SET_FOR_DATABASE = """
SELECT substring(entry from '^search_path=(.*)$')
  FROM pg_catalog.pg_db_role_setting s, unnest(s.setconfig) AS entry
 WHERE s.setdatabase IN (0, (SELECT oid FROM pg_catalog.pg_database WHERE datname = current_database()))
   AND s.setrole = 0 AND entry LIKE 'search_path=%'
 ORDER BY s.setdatabase DESC LIMIT 1
"""


def names_of(path: str) -> str:
    """An expression: the array of names in a search_path, as the server reads it.

    Args:
        path: an expression of type text.
    """
    return f"""ARRAY(
        SELECT CASE WHEN m.found[1] LIKE '"%'
                    THEN replace(substr(m.found[1], 2, length(m.found[1]) - 2), '""', '"')
                    ELSE lower(m.found[1]) END
          FROM regexp_matches({path}, '"(?:[^"]|"")*"|[^[:space:],"]+', 'g')
               WITH ORDINALITY AS m (found, place)
         ORDER BY m.place)"""


def set_to(names: str) -> str:
    """A statement of PL/pgSQL: gives the current database a search_path.

    Args:
        names: an expression of type text[].
    """
    return f"""EXECUTE format('ALTER DATABASE %I SET search_path = %s', current_database(),
        (SELECT string_agg(quote_literal(n.name), ', ' ORDER BY n.place)
           FROM unnest({names}) WITH ORDINALITY AS n (name, place)));"""


INSTALLED = """
SELECT current_database(),
       EXISTS (SELECT 1 FROM pg_catalog.pg_tables
                WHERE schemaname = 'cerebro' AND tablename = 'catalog_migrations')
"""
# By which the schema is known to be ours: it belongs to a superuser, and only its owner can comment on it.
MADLIB_COMMENT = "Cerebro-DB: the names of the functions of MADlib"
_MADLIB = f"""
SELECT n.oid FROM pg_catalog.pg_namespace n JOIN pg_catalog.pg_roles r ON r.oid = n.nspowner
 WHERE n.nspname = 'madlib' AND r.rolsuper
   AND pg_catalog.obj_description(n.oid, 'pg_namespace') = '{MADLIB_COMMENT}'"""
HAS_MADLIB = f"SELECT EXISTS ({_MADLIB})"
# Runs that somebody drives, as sql/prepare/050_alive.sql finds them: in two statements, as one may not read the
# catalog beside the locks where it lies on segments.
HELD_LOCKS = """
SELECT (l.classid::bigint << 32) | l.objid::bigint, l.pid FROM pg_catalog.pg_locks l
 WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1
   AND l.database = (SELECT d.oid FROM pg_catalog.pg_database d WHERE d.datname = current_database())
"""
ALIVE = """
SELECT DISTINCT r.run_id
  FROM cerebro.catalog_runs r
  JOIN (VALUES {locks}) AS h(key, pid) ON h.key = r.lock_key AND h.pid = r.driver_pid
 WHERE r.status IN ('starting', 'running') ORDER BY 1
"""
PAUSE = "SELECT cerebro.cerebro_pause({run_id})"
SERVER_FACTS = """
SELECT current_setting('server_version'),
       (SELECT default_version FROM pg_catalog.pg_available_extensions WHERE name = 'plpython3u'),
       (SELECT default_version FROM pg_catalog.pg_available_extensions WHERE name = 'pg_cron'),
       EXISTS (SELECT 1 FROM pg_catalog.pg_extension WHERE extname = 'pg_cron'),
       current_database(), current_setting('server_encoding')
"""
# What the catalog has of roles that are not here, by the name of the role; a query of texts.
ADOPT = "SELECT cerebro._adopt()"
UNOWNED = """
SELECT k.name::text, concat_ws(', ',
           CASE WHEN f.runs > 0 THEN f.runs || ' runs' END, CASE WHEN f.models > 0 THEN f.models || ' registered models' END,
           CASE WHEN f.jobs > 0 THEN f.jobs || ' jobs' END, CASE WHEN f.schedules > 0 THEN f.schedules || ' schedules' END)
  FROM cerebro.catalog_roles k
  LEFT JOIN pg_catalog.pg_roles r ON r.oid = k.role
 CROSS JOIN LATERAL (
       SELECT (SELECT count(*) FROM cerebro.catalog_runs c WHERE c.owner = k.role) AS runs,
              (SELECT count(*) FROM cerebro.catalog_models c WHERE c.owner = k.role) AS models,
              (SELECT count(*) FROM cerebro.catalog_jobs c WHERE c.owner = k.role) AS jobs,
              (SELECT count(*) FROM cerebro.catalog_schedules c WHERE c.owner = k.role) AS schedules) f
 WHERE r.oid IS NULL AND f.runs + f.models + f.jobs + f.schedules > 0 ORDER BY 1
"""
SUPERUSER = "SELECT current_user, current_setting('is_superuser')"

# Only superusers can make a function of their own in this language.
_ANY = "cerebro_version"  # of its functions, which all begin alike
BODY = f"""
SELECT p.prosrc
  FROM pg_catalog.pg_proc p
  JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace
  JOIN pg_catalog.pg_language l ON l.oid = p.prolang
  JOIN pg_catalog.pg_roles r ON r.oid = p.proowner
 WHERE n.nspname = 'cerebro' AND p.proname = '{_ANY}' AND p.pronargs = 0
   AND l.lanname = 'plpython3u' AND r.rolsuper
"""

VERSION = "SELECT cerebro.cerebro_version()"
LIBRARY_VERSIONS = "SELECT name, version FROM pg_temp.cerebro_library_versions()"
SETTINGS = """
SELECT pg_catalog.json_object_agg(s.name, s.value)::text FROM cerebro.settings s
 WHERE s.name <> 'worker_dsn'
"""

SURROUNDINGS = f"SELECT name, value, warning FROM pg_temp.cerebro_surroundings(({SETTINGS}))"

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
_DEFAULT = "(SELECT boot_val FROM pg_catalog.pg_settings WHERE name = 'search_path')"
# Objects that DROP SCHEMA ... CASCADE would take along: dependents, and dependents of dependents. A view
# is found through its rule. Left out is what belongs to an object that goes: ``how`` is 'i' for its
# internal parts, and 'a' for what a table of ours has and no schema of its own, such as a default.
DEPENDENT = f"""
WITH RECURSIVE dependent (classid, objid, objsubid, how) AS (
    SELECT 'pg_catalog.pg_namespace'::regclass::oid, oid, 0, 'i'::text
      FROM pg_catalog.pg_namespace WHERE nspname IN ('cerebro', 'cerebro_states') OR oid IN ({_MADLIB})
    UNION
    SELECT owned.classid, owned.objid, owned.objsubid, owned.how
      FROM dependent
      JOIN pg_catalog.pg_depend d
        ON d.refclassid = dependent.classid AND d.refobjid = dependent.objid
       AND dependent.objsubid IN (0, d.refobjsubid)
      LEFT JOIN pg_catalog.pg_class c
        ON d.refclassid = 'pg_catalog.pg_class'::regclass AND c.oid = d.refobjid
      LEFT JOIN pg_catalog.pg_namespace ours
        ON ours.oid = CASE d.refclassid WHEN 'pg_catalog.pg_namespace'::regclass THEN d.refobjid
                           ELSE c.relnamespace END
       AND ours.nspname IN ('cerebro', 'cerebro_states')
      LEFT JOIN pg_catalog.pg_rewrite r
        ON d.classid = 'pg_catalog.pg_rewrite'::regclass AND r.oid = d.objid
       AND r.rulename = '_RETURN'
     CROSS JOIN LATERAL (
        SELECT d.classid, d.objid, d.objsubid,
               CASE WHEN d.deptype = 'i' THEN 'i'
                    WHEN d.deptype = 'a' AND ours.oid IS NOT NULL THEN 'a' ELSE 'n' END
         WHERE r.oid IS NULL
        UNION ALL
        SELECT 'pg_catalog.pg_class'::regclass::oid, r.ev_class, 0, 'n' WHERE r.oid IS NOT NULL
     ) AS owned (classid, objid, objsubid, how)
     WHERE d.deptype IN ('n', 'a', 'i', 'P', 'S')
)
SELECT o.type, o.identity
  FROM dependent, LATERAL pg_catalog.pg_identify_object(classid, objid, objsubid) AS o
 WHERE coalesce(o.schema, '') NOT IN ('cerebro', 'cerebro_states', 'pg_toast')
   AND NOT (coalesce(o.schema, '') = 'madlib' AND EXISTS ({_MADLIB}))
 GROUP BY o.type, o.identity, o.schema
HAVING NOT bool_or(how = 'i' OR how = 'a' AND o.schema IS NULL)
 ORDER BY o.type, o.identity
"""
UNINSTALL = f"""
-- Timers of pg_cron that would fail from now on, of whomever they are.
DO $$
BEGIN
    IF EXISTS (SELECT 1 FROM pg_catalog.pg_extension WHERE extname = 'pg_cron') THEN
        EXECUTE 'SELECT cron.unschedule(jobid) FROM cron.job WHERE database = current_database() AND ('
                'command = ''SELECT cerebro.cerebro_work()'' '
                'OR position(''SELECT cerebro.cerebro_start_schedule('' IN command) = 1)';
    END IF;
END
$$;
DO $$
BEGIN
    IF EXISTS ({_MADLIB}) THEN
        DROP SCHEMA madlib CASCADE;
    END IF;
END
$$;
DROP SCHEMA IF EXISTS cerebro_states CASCADE;
DROP SCHEMA cerebro CASCADE;

DO $$
DECLARE
    names text[] := {names_of(f"({SET_FOR_DATABASE})")};
    left_over text[] := array_remove(names, 'cerebro');
BEGIN
    IF left_over = '{{}}' OR left_over = {names_of(_DEFAULT)} THEN
        EXECUTE format('ALTER DATABASE %I RESET search_path', current_database());
    ELSIF left_over <> names THEN
        {set_to("left_over")}
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

# Tables of pg_cron: it ends at a job whose role has another name, or is gone, and starts nothing more.
CRON_ORPHANS = """
SELECT j.jobid, coalesce(j.jobname, j.command), j.username FROM cron.job j
 WHERE NOT EXISTS (SELECT 1 FROM pg_catalog.pg_roles r WHERE r.rolname = j.username) ORDER BY 1
"""
CRON_LAUNCHER = """
SELECT count(*) FROM pg_catalog.pg_stat_activity
 WHERE backend_type = 'pg_cron launcher' OR application_name = 'pg_cron scheduler'
"""
# The last start of each timer of Cerebro-DB; a job that is new has none yet.
CRON_RUNS = """
SELECT j.jobname, d.status, d.return_message, d.start_time::text,
       j.jobname = 'cerebro jobs' AND d.start_time < now() - interval '5 minutes'
  FROM cron.job j
  JOIN (SELECT DISTINCT ON (r.jobid) r.jobid, r.status, r.return_message, r.start_time
          FROM cron.job_run_details r WHERE r.start_time IS NOT NULL ORDER BY r.jobid, r.runid DESC) d ON d.jobid = j.jobid
 WHERE j.jobname LIKE 'cerebro %' ORDER BY 1
"""
OVERDUE = """
SELECT s.owner, s.name, s.timer, s.next_start::text FROM cerebro.schedules s WHERE s.is_overdue ORDER BY 1, 2
"""
