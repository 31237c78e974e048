"""Parts of an installation where tables are spread over segments: texts for its script."""

from __future__ import annotations

from cerebro_db.postgres.dialects.choice import HAS_SEGMENTS

# Statements of a PL/pgSQL block, run after each migration. Every segment has a copy of the catalog:
# triggers can look into it there, and any columns can be unique.
REPLICATE_CATALOG = f"""
IF {HAS_SEGMENTS} THEN
    EXECUTE $replicate$
    DO $do$
    DECLARE
        spread regclass;
    BEGIN
        FOR spread IN
            SELECT p.localoid FROM pg_catalog.gp_distribution_policy p
              JOIN pg_catalog.pg_class c ON c.oid = p.localoid
             WHERE c.relnamespace = (SELECT oid FROM pg_catalog.pg_namespace WHERE nspname = 'cerebro')
               AND p.policytype <> 'r'
        LOOP
            EXECUTE pg_catalog.format('ALTER TABLE %s SET DISTRIBUTED REPLICATED', spread);
        END LOOP;
    END
    $do$
    $replicate$;
END IF;
"""

# An expression: who holds which advisory lock of this database, on the coordinator.
# An array without elements comes to the segments as NULL, which would compare to nothing.
HELD_LOCKS = """COALESCE(ARRAY(
            SELECT l.pid || '/' || ((l.classid::bigint << 32) | l.objid::bigint)
              FROM pg_catalog.pg_locks l
             WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1
               AND l.gp_segment_id = -1 AND l.database = (
                   SELECT d.oid FROM pg_catalog.pg_database d
                    WHERE d.datname = current_database())), '{}')"""

SEGMENTS = f"SELECT {HAS_SEGMENTS}"

# Statements of a PL/pgSQL block: what a row is checked by that is inserted on a segment. The view
# whose option does that elsewhere cannot be looked into there, and its option is not looked at. A trigger
# with an argument lets only those write who have the rights of the run's owner.
CHECK_RUN = f"""
IF {HAS_SEGMENTS} THEN
    EXECUTE $own$CREATE OR REPLACE FUNCTION cerebro._may_write(run_id bigint, role oid, as_administrator boolean)
        RETURNS boolean LANGUAGE plpgsql STABLE SECURITY DEFINER
        SET search_path = pg_catalog, pg_temp AS $body$
        DECLARE
            owner oid;
        BEGIN
            -- Rights are no part of the query: it would be planned anew for each row then.
            SELECT r.owner INTO owner FROM cerebro.catalog_runs r WHERE r.run_id = $1;
            -- Nobody learns anything about roles that are not their own.
            RETURN FOUND AND pg_has_role(session_user, $2, 'MEMBER')
               AND (pg_has_role($2, owner, 'USAGE') OR $3 AND pg_has_role($2, 'cerebro_admin', 'USAGE'));
        END
        $body$$own$;
    ALTER FUNCTION cerebro._may_write(bigint, oid, boolean) OWNER TO cerebro_owner;
    COMMENT ON FUNCTION cerebro._may_write(bigint, oid, boolean) IS
        'Internal: whether a role may write rows of a run, as its owner or also as an administrator.';
    EXECUTE $own$CREATE OR REPLACE FUNCTION cerebro._check_run()
        RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $body$
        BEGIN
            IF cerebro._may_write(NEW.run_id, cerebro._role(), TG_NARGS = 0) IS NOT TRUE THEN
                RAISE EXCEPTION USING ERRCODE = '44000', MESSAGE = format(
                    'run_id: got %s; you have no run of that number', NEW.run_id);
            END IF;
            RETURN NEW;
        END
        $body$$own$;
END IF;
"""

# The same for events of jobs.
CHECK_JOB = f"""
IF {HAS_SEGMENTS} THEN
    EXECUTE $own$CREATE OR REPLACE FUNCTION cerebro._may_tell(job_id bigint, role oid)
        RETURNS boolean LANGUAGE plpgsql STABLE SECURITY DEFINER
        SET search_path = pg_catalog, pg_temp AS $body$
        DECLARE
            owner oid;
        BEGIN
            SELECT j.owner INTO owner FROM cerebro.catalog_jobs j WHERE j.job_id = $1;
            RETURN FOUND AND (pg_has_role($2, owner, 'USAGE') OR pg_has_role($2, 'cerebro_admin', 'USAGE')
                OR (SELECT r.rolname FROM pg_roles r WHERE r.oid = $2) = 'cerebro_owner');
        END
        $body$$own$;
    ALTER FUNCTION cerebro._may_tell(bigint, oid) OWNER TO cerebro_owner;
    COMMENT ON FUNCTION cerebro._may_tell(bigint, oid) IS
        'Internal: whether a role may write events of a job.';
    EXECUTE $own$CREATE OR REPLACE FUNCTION cerebro._check_job_event()
        RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $body$
        BEGIN
            IF cerebro._may_tell(NEW.job_id, cerebro._role()) IS NOT TRUE THEN
                RAISE EXCEPTION USING ERRCODE = '44000', MESSAGE = format(
                    'job_id: got %s; you have no job of that number', NEW.job_id);
            END IF;
            RETURN NEW;
        END
        $body$$own$;
    COMMENT ON FUNCTION cerebro._check_job_event() IS
        'Internal: refuses events of jobs that the caller may not tell of.';
    DROP TRIGGER IF EXISTS check_job_event ON cerebro.catalog_job_events;
    CREATE TRIGGER check_job_event BEFORE INSERT ON cerebro.catalog_job_events
        FOR EACH ROW EXECUTE PROCEDURE cerebro._check_job_event();
END IF;
"""

# The same for rows of registered models, which only those add who have the rights of the owner.
CHECK_MODEL = f"""
IF {HAS_SEGMENTS} THEN
    EXECUTE $own$CREATE OR REPLACE FUNCTION cerebro._may_keep(model_id bigint, role oid)
        RETURNS boolean LANGUAGE plpgsql STABLE SECURITY DEFINER
        SET search_path = pg_catalog, pg_temp AS $body$
        BEGIN
            RETURN EXISTS (SELECT 1 FROM cerebro.catalog_models m
                            WHERE m.model_id = $1 AND pg_has_role($2, m.owner, 'USAGE'));
        END
        $body$$own$;
    ALTER FUNCTION cerebro._may_keep(bigint, oid) OWNER TO cerebro_owner;
    COMMENT ON FUNCTION cerebro._may_keep(bigint, oid) IS
        'Internal: whether a role may add rows of a registered model.';
    EXECUTE $own$CREATE OR REPLACE FUNCTION cerebro._check_model()
        RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $body$
        BEGIN
            IF NOT cerebro._may_keep(NEW.model_id, cerebro._role()) THEN
                RAISE EXCEPTION USING ERRCODE = '44000', MESSAGE = format(
                    'model_id: got %s; you have no model of that number', NEW.model_id);
            END IF;
            RETURN NEW;
        END
        $body$$own$;
END IF;
"""

# The order in which everybody locks what has rows of runs: whoever begins a run inserts in it, too.
_LOCK_ORDER = (
    "runs", "configurations", "architectures", "plan", "decisions", "direct_answers", "hops", "updates", "metrics",
    "requests", "direct_workers", "direct_orders", "models",
)  # fmt: skip

# Statements of a PL/pgSQL block: there an UPDATE or DELETE locks the view, and then the table, such that
# nobody else writes. LOCK takes no views, so this is one of no rows.
LOCK_CATALOG = f"""
IF {HAS_SEGMENTS} THEN
    EXECUTE $own$CREATE OR REPLACE FUNCTION cerebro._lock_catalog(tables text[])
        RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $body$
        DECLARE
            found text;
        BEGIN
            FOREACH found IN ARRAY '{{{", ".join(_LOCK_ORDER)}}}'::text[] LOOP
                IF found = ANY ($1) THEN
                    EXECUTE format('DELETE FROM cerebro._%s WHERE false', found);
                END IF;
            END LOOP;
        END
        $body$$own$;
END IF;
"""

# Statements of a PL/pgSQL block: rows of the catalog that some segments have and others do not. Whoever
# can reach a segment itself may have written them there: what they hold is never part of a statement
# that somebody is told to run. Rows and addresses are told to superusers only.
CATALOG_DIFFERENCES = f"""
IF {HAS_SEGMENTS} THEN
    EXECUTE $own$CREATE OR REPLACE FUNCTION cerebro._catalog_differences()
        RETURNS TABLE (message text, hint text) LANGUAGE plpgsql SECURITY DEFINER
        SET search_path = pg_catalog, pg_temp AS $body$
        DECLARE
            spread text;
            keys text;
            own text;
            found integer[];
            node record;
            in_full boolean := (SELECT r.rolsuper FROM pg_roles r WHERE r.rolname = session_user);
        BEGIN
            FOR spread, keys IN
                SELECT i.indrelid::regclass::text,
                       string_agg(quote_ident(a.attname), ', ' ORDER BY a.attnum)
                  FROM pg_index i
                  JOIN pg_class c ON c.oid = i.indrelid
                  JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey)
                 WHERE i.indisprimary AND c.relnamespace = (
                           SELECT n.oid FROM pg_namespace n WHERE n.nspname = 'cerebro')
                   AND pg_get_userbyid(c.relowner) = current_user
                 GROUP BY 1 ORDER BY 1
            LOOP
                FOR own, found IN EXECUTE format(
                    'SELECT ROW(%s)::text, array_agg(s.segment) '
                    'FROM (SELECT gp_execution_segment() AS segment, * FROM gp_dist_random(%L) '
                    'OFFSET 0) s GROUP BY %s HAVING count(*) <> %s '
                    'ORDER BY %s LIMIT 5', keys, spread, keys,
                    (SELECT count(*) FROM gp_segment_configuration c
                      WHERE c.role = 'p' AND c.content >= 0), keys)
                LOOP
                    FOR node IN SELECT c.content, c.address, c.port,
                                       c.content = ANY (found) AS has
                          FROM gp_segment_configuration c
                         WHERE c.role = 'p' AND c.content >= 0
                           AND (c.content = ANY (found)) = (2 * cardinality(found) <= (
                                   SELECT count(*) FROM gp_segment_configuration o
                                    WHERE o.role = 'p' AND o.content >= 0))
                         ORDER BY 1
                    LOOP
                        IF in_full THEN
                            message := format(
                                'segment %s (%s:%s) %s the row of %s whose %s is %L, unlike the others',
                                node.content, node.address, node.port,
                                CASE WHEN node.has THEN 'has' ELSE 'lacks' END, spread, keys,
                                left(regexp_replace(own, '[[:cntrl:]]', '?', 'g'), 100));
                            hint := CASE WHEN node.has THEN format(
                                'as a superuser in utility mode (gp_session_role) on segment %1$s: SELECT ctid, '
                                '%2$s FROM %3$s shows where the row is, and DELETE FROM %3$s WHERE '
                                'gp_segment_id = %1$s AND ctid = <its ctid> removes it; ',
                                node.content, keys, spread)
                                ELSE 'copy it there in utility mode, or delete it on the others; ' END
                                || 'pg_hba.conf of segments should let in the coordinator only';
                        ELSE
                            message := format('copies of the catalog differ on segment %s', node.content);
                            hint := 'ask an administrator to run cerebro verify, which tells the row';
                        END IF;
                        RETURN NEXT;
                    END LOOP;
                END LOOP;
            END LOOP;
        END
        $body$$own$;
    ALTER FUNCTION cerebro._catalog_differences() OWNER TO cerebro_owner;
END IF;
"""

# Statements of a PL/pgSQL block: there the next number of a sequence needs the right to update it, and
# who has that may set it back as well. So a function of the owner takes it.
OWN_NUMBERS = f"""
IF {HAS_SEGMENTS} THEN
    EXECUTE $own$CREATE OR REPLACE FUNCTION cerebro._next_number(what text)
        RETURNS bigint LANGUAGE plpgsql SECURITY DEFINER
        SET search_path = pg_catalog, pg_temp AS $body$
        BEGIN
            RETURN CASE $1 WHEN 'run' THEN nextval('cerebro.catalog_runs_run_id_seq')
                           WHEN 'request' THEN nextval('cerebro.catalog_requests_request_id_seq')
                           WHEN 'model' THEN nextval('cerebro.catalog_models_model_id_seq')
                           WHEN 'version' THEN nextval('cerebro.catalog_model_versions_version_id_seq')
                           WHEN 'change' THEN nextval('cerebro.catalog_model_aliases_change_id_seq')
                           WHEN 'job' THEN nextval('cerebro.catalog_jobs_job_id_seq')
                           WHEN 'event' THEN nextval('cerebro.catalog_job_events_event_id_seq')
                           WHEN 'worker' THEN nextval('cerebro.catalog_direct_workers_worker_id_seq')
                           WHEN 'order' THEN nextval('cerebro.catalog_direct_orders_order_id_seq')
                   END;
        END
        $body$$own$;
    ALTER FUNCTION cerebro._next_number(text) OWNER TO cerebro_owner;
    COMMENT ON FUNCTION cerebro._next_number(text) IS
        'Internal: the number of the next run, request, registered model, version, change of an alias, job, event, direct worker or order.';
    REVOKE ALL ON FUNCTION cerebro._next_number(text) FROM PUBLIC;
    GRANT EXECUTE ON FUNCTION cerebro._next_number(text) TO cerebro_user;
    REVOKE UPDATE ON SEQUENCE cerebro.catalog_runs_run_id_seq, cerebro.catalog_requests_request_id_seq
        FROM cerebro_user;
    ALTER TABLE cerebro.catalog_runs
        ALTER COLUMN run_id SET DEFAULT cerebro._next_number('run');
    ALTER TABLE cerebro.catalog_requests
        ALTER COLUMN request_id SET DEFAULT cerebro._next_number('request');
    ALTER TABLE cerebro.catalog_models
        ALTER COLUMN model_id SET DEFAULT cerebro._next_number('model');
    ALTER TABLE cerebro.catalog_model_versions
        ALTER COLUMN version_id SET DEFAULT cerebro._next_number('version');
    ALTER TABLE cerebro.catalog_model_aliases
        ALTER COLUMN change_id SET DEFAULT cerebro._next_number('change');
    ALTER TABLE cerebro.catalog_jobs
        ALTER COLUMN job_id SET DEFAULT cerebro._next_number('job');
    ALTER TABLE cerebro.catalog_job_events
        ALTER COLUMN event_id SET DEFAULT cerebro._next_number('event');
    ALTER TABLE cerebro.catalog_direct_workers
        ALTER COLUMN worker_id SET DEFAULT cerebro._next_number('worker');
    ALTER TABLE cerebro.catalog_direct_orders
        ALTER COLUMN order_id SET DEFAULT cerebro._next_number('order');
END IF;
"""

# A function like that of the installation, but one that the planner does not call beforehand.
VERSION_HERE = """
DO $do$
BEGIN
    EXECUTE pg_catalog.format(
        'CREATE FUNCTION pg_temp.cerebro_version_here() RETURNS text LANGUAGE plpython3u AS %L',
        (SELECT p.prosrc FROM pg_catalog.pg_proc p
          WHERE p.oid = 'cerebro.cerebro_version()'::pg_catalog.regprocedure));
END
$do$
"""

# What each segment runs on, asked of a process there: host, segment, name, version. The function
# of the installation comes first: it puts that process on its Python path.
SEGMENT_VERSIONS = """
SELECT c.hostname::text, v.segment, v.package, (v.library).name, (v.library).version
  FROM (SELECT gp_segment_id AS segment, pg_temp.cerebro_version_here() AS package,
               pg_temp.cerebro_library_versions() AS library
          FROM gp_dist_random('gp_id')) v
  JOIN pg_catalog.gp_segment_configuration c ON c.content = v.segment AND c.role = 'p'
 ORDER BY 2, 4
"""

# What limits trainers beside each segment: host, name, value, warning. Parameter: the settings, as JSON.
SEGMENT_SURROUNDINGS = """
SELECT DISTINCT c.hostname::text, (v.found).name, (v.found).value, (v.found).warning
  FROM (SELECT gp_segment_id AS segment, pg_temp.cerebro_surroundings({settings}) AS found
          FROM gp_dist_random('gp_id')) v
  JOIN pg_catalog.gp_segment_configuration c ON c.content = v.segment AND c.role = 'p'
 ORDER BY 1, 2
"""

# What limits how many statements run at once: kind, name, how many.
SLOTS = """
SELECT 'resource queue', q.rsqname::text, q.rsqcountlimit::integer FROM pg_catalog.pg_resqueue q
 WHERE q.rsqcountlimit > 0 AND pg_catalog.current_setting('gp_resource_manager') = 'queue'
UNION ALL
SELECT 'resource group', g.rsgname::text, c.value::integer
  FROM pg_catalog.pg_resgroup g
  JOIN pg_catalog.pg_resgroupcapability c ON c.resgroupid = g.oid AND c.reslimittype = 1
 WHERE c.value::integer > 0 AND pg_catalog.current_setting('gp_resource_manager') = 'group'
 ORDER BY 1, 2
"""
# Beside its workers, a run is a statement of its caller and one that looks after it.
STATEMENTS_BESIDE_WORKERS = 2

# By how much processes of segments give way to others on their hosts.
PRIORITY = "SELECT pg_catalog.current_setting('gp_segworker_relative_priority')::integer"
