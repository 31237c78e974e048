-- Jobs: calls that go on without their session, and those that a timer makes. See docs/decisions/jobs.md.
{%- set ends = "('finished', 'failed', 'cancelled', 'paused', 'skipped')" %}
{%- set stands = "('queued', 'started', 'finished', 'failed', 'cancelled', 'paused', 'skipped')" %}
{%- macro called(calls) %}concat_ws(', '{% for place in range(6) %}, {{ calls }} -> {{ place }} ->> 0{% endfor %}, CASE WHEN json_array_length({{ calls }}) > 6 THEN '...' END){% endmacro %}
{%- set owner_type = 'oid' %}
{%- set views = ['job_log', 'jobs', 'schedules', '_old_runs', '_schedules', '_job_events', '_jobs'] %}
{#- They are dropped in 600_views.sql, before the views that they look into. #}

CREATE VIEW cerebro._jobs WITH (security_barrier) AS
SELECT j.* FROM cerebro.catalog_jobs j
 WHERE pg_has_role(j.owner, 'USAGE') OR pg_has_role('cerebro_admin', 'USAGE');
COMMENT ON VIEW cerebro._jobs IS 'Internal: the jobs that the caller may see.';

CREATE VIEW cerebro._job_events WITH (security_barrier) AS
SELECT e.* FROM cerebro.catalog_job_events e
 WHERE EXISTS (SELECT 1 FROM cerebro._jobs j WHERE j.job_id = e.job_id);
COMMENT ON VIEW cerebro._job_events IS 'Internal: events of the jobs that the caller may see.';

CREATE VIEW cerebro._schedules WITH (security_barrier) AS
SELECT s.* FROM cerebro.catalog_schedules s WHERE pg_has_role(s.owner, 'USAGE');
COMMENT ON VIEW cerebro._schedules IS 'Internal: the schedules that the caller may change.';

-- Nobody writes them but by the functions below.
GRANT SELECT ON cerebro._jobs, cerebro._job_events, cerebro._schedules TO cerebro_user;

CREATE OR REPLACE FUNCTION cerebro._open_jobs(owner {{ owner_type }}) RETURNS bigint
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    found bigint;
BEGIN
    SELECT count(*) INTO found FROM cerebro.catalog_jobs j
     WHERE NOT j.ended AND j.owner = $1
       -- Where tables lie on segments nobody notes that a job has ended.
       AND NOT EXISTS (SELECT 1 FROM cerebro.catalog_job_events e WHERE e.job_id = j.job_id AND e.action IN {{ ends }});
    RETURN found;
END
$$;
ALTER FUNCTION cerebro._open_jobs({{ owner_type }}) OWNER TO cerebro_owner;
COMMENT ON FUNCTION cerebro._open_jobs({{ owner_type }}) IS 'Internal: how many jobs of a role have not ended.';

CREATE OR REPLACE FUNCTION cerebro._most_waiting_jobs() RETURNS bigint
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    most text;
BEGIN
    -- A segment reads no view.
    SELECT s.value INTO most FROM cerebro.catalog_settings s WHERE s.name = 'max_waiting_jobs_of_role';
    RETURN coalesce(most, {% for one in settings if one.name == 'max_waiting_jobs_of_role' %}{{ one.default | sql_string }}{% endfor %});
END
$$;
ALTER FUNCTION cerebro._most_waiting_jobs() OWNER TO cerebro_owner;
COMMENT ON FUNCTION cerebro._most_waiting_jobs() IS 'Internal: how many jobs of a role may be there that have not ended.';

-- A trigger, so that an event and what follows from it are one: no job that has ended is looked at any more.
CREATE OR REPLACE FUNCTION cerebro._job_ends() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    UPDATE cerebro.catalog_jobs AS j SET ended = true WHERE j.job_id = NEW.job_id AND NOT j.ended;
    RETURN NULL;
END
$$;
ALTER FUNCTION cerebro._job_ends() OWNER TO cerebro_owner;
COMMENT ON FUNCTION cerebro._job_ends() IS 'Internal: notes that a job has ended.';
DROP TRIGGER IF EXISTS job_ends ON cerebro.catalog_job_events;
{%- if dialect.triggers_write %}
CREATE TRIGGER job_ends AFTER INSERT ON cerebro.catalog_job_events
    FOR EACH ROW WHEN (NEW.action IN {{ ends }}) EXECUTE PROCEDURE cerebro._job_ends();
-- Those that ended before there was this trigger.
UPDATE cerebro.catalog_jobs AS j SET ended = true
 WHERE NOT j.ended AND EXISTS (SELECT 1 FROM cerebro.catalog_job_events e
                                WHERE e.job_id = j.job_id AND e.action IN {{ ends }});
{%- endif %}

-- Nobody is put before others but by an administrator.
CREATE OR REPLACE FUNCTION cerebro._check_priority(role {{ owner_type }}, priority integer) RETURNS void
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF $2 > 0 AND NOT pg_has_role($1, 'cerebro_admin', 'USAGE') THEN
        RAISE EXCEPTION USING ERRCODE = '42501',
            MESSAGE = format('priority: got %s; allowed: -100 to 0', $2),
            HINT = 'members of cerebro_admin may put jobs before those of others, up to 100';
    END IF;
END
$$;
ALTER FUNCTION cerebro._check_priority({{ owner_type }}, integer) OWNER TO cerebro_owner;
COMMENT ON FUNCTION cerebro._check_priority({{ owner_type }}, integer) IS 'Internal: refuses a priority that is for administrators.';

CREATE OR REPLACE FUNCTION cerebro._add_job(
    calls json, session json, priority integer, schedule text, on_success text, lock_key bigint
) RETURNS bigint LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    context text;
    role    {{ owner_type }};
    waiting bigint;
    most    bigint := cerebro._most_waiting_jobs();
    number  bigint;
BEGIN
    GET DIAGNOSTICS context = PG_CONTEXT;
    role := cerebro._writer(context);
    PERFORM cerebro._check_priority(role, $3);
    waiting := cerebro._open_jobs(role);
    IF waiting >= most THEN
        RAISE EXCEPTION USING ERRCODE = '53400',
            MESSAGE = format('got a job beside %s of this role that have not ended; allowed: %s, the setting '
                             'max_waiting_jobs_of_role', waiting, most),
            HINT = 'wait until some have ended, or cancel some: SELECT cerebro.cerebro_cancel_job(job_id)';
    END IF;
    INSERT INTO cerebro.catalog_jobs (owner, calls, session, priority, schedule, on_success, lock_key)
    VALUES (role, $1, $2, $3, $4, $5, $6) RETURNING job_id INTO number;
    RETURN number;
END
$$;
ALTER FUNCTION cerebro._add_job(json, json, integer, text, text, bigint) OWNER TO cerebro_owner;
COMMENT ON FUNCTION cerebro._add_job(json, json, integer, text, text, bigint) IS
'Internal: writes down a job of the role that calls; returns its number.';

-- What a job is resumed from is written by those who have the rights of its owner. Administrators stop it, and no more.
CREATE OR REPLACE FUNCTION cerebro._tell_of_job(job_id bigint, action text, run_id bigint, message text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    context text;
    role    {{ owner_type }};
    whose   {{ owner_type }};
    number  bigint;
BEGIN
    GET DIAGNOSTICS context = PG_CONTEXT;
    SELECT j.owner INTO whose FROM cerebro.catalog_jobs j WHERE j.job_id = $1;
    role := cerebro._check_writer(context, 'job', $1, whose, true);
    IF cerebro._stands(role, whose) COLLATE "C" <> 'owner' AND $2 COLLATE "C" NOT IN ('cancel', 'cancelled', 'paused') THEN
        RAISE EXCEPTION USING ERRCODE = '42501',
            MESSAGE = format('action: got %s of a job of another role; allowed: cancel', $2),
            HINT = 'Its owner, or a role that has the rights of its owner, tells what becomes of it.';
    END IF;
    -- Who cancels a job cancels its run.
    SELECT r.run_id INTO number FROM cerebro.catalog_runs r WHERE r.run_id = $3 AND r.owner = whose;
    IF number IS NULL AND $2 COLLATE "C" = 'run' THEN
        RAISE EXCEPTION USING ERRCODE = '44000',
            MESSAGE = format('run_id: got %s; allowed: a run of the owner of the job', coalesce($3::text, 'NULL'));
    END IF;
    INSERT INTO cerebro.catalog_job_events (job_id, action, run_id, message, role) VALUES ($1, $2, number, $4, role);
END
$$;
ALTER FUNCTION cerebro._tell_of_job(bigint, text, bigint, text) OWNER TO cerebro_owner;
COMMENT ON FUNCTION cerebro._tell_of_job(bigint, text, bigint, text) IS
'Internal: adds an event to a job: any one with the rights of its owner, and that it is stopped as an administrator.';

CREATE OR REPLACE FUNCTION cerebro._add_schedule(
    name text, cron text, calls json, session json, on_success text, priority integer, timer text, due timestamptz
) RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    context text;
    role    {{ owner_type }};
BEGIN
    GET DIAGNOSTICS context = PG_CONTEXT;
    role := cerebro._writer(context);
    PERFORM cerebro._check_priority(role, $6);
    INSERT INTO cerebro.catalog_schedules (owner, name, cron, calls, session, on_success, priority, timer, due)
    VALUES (role, $1, $2, $3, $4, $5, $6, $7, $8);
END
$$;
ALTER FUNCTION cerebro._add_schedule(text, text, json, json, text, integer, text, timestamptz) OWNER TO cerebro_owner;
COMMENT ON FUNCTION cerebro._add_schedule(text, text, json, json, text, integer, text, timestamptz) IS
'Internal: stores a schedule of the role that calls.';

CREATE OR REPLACE FUNCTION cerebro._set_due(name text, due timestamptz) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    context text;
    role    {{ owner_type }};
BEGIN
    GET DIAGNOSTICS context = PG_CONTEXT;
    role := cerebro._writer(context);
    UPDATE cerebro.catalog_schedules AS s SET due = $2 WHERE s.name COLLATE "C" = $1 AND s.owner = role;
END
$$;
ALTER FUNCTION cerebro._set_due(text, timestamptz) OWNER TO cerebro_owner;
COMMENT ON FUNCTION cerebro._set_due(text, timestamptz) IS
'Internal: notes when a schedule of the role that calls starts next; no other session starts it until the transaction ends.';

CREATE OR REPLACE FUNCTION cerebro._drop_schedule(name text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    context text;
    role    {{ owner_type }};
BEGIN
    GET DIAGNOSTICS context = PG_CONTEXT;
    role := cerebro._writer(context);
    DELETE FROM cerebro.catalog_schedules s WHERE s.name COLLATE "C" = $1 AND s.owner = role;
END
$$;
ALTER FUNCTION cerebro._drop_schedule(text) OWNER TO cerebro_owner;
COMMENT ON FUNCTION cerebro._drop_schedule(text) IS 'Internal: forgets a schedule of the role that calls.';

-- Who listens hears that something has changed, not what: everybody in a database may listen to any channel.
CREATE OR REPLACE FUNCTION cerebro._tell_change() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF TG_TABLE_NAME = 'catalog_runs' THEN
        PERFORM pg_catalog.pg_notify('cerebro_runs', pg_catalog.format('{"run_id": %s}', NEW.run_id));
    ELSIF NEW.run_id IS NULL THEN
        PERFORM pg_catalog.pg_notify('cerebro_runs', pg_catalog.format('{"job_id": %s}', NEW.job_id));
    ELSE
        PERFORM pg_catalog.pg_notify('cerebro_runs', pg_catalog.format('{"job_id": %s, "run_id": %s}',
                                                                       NEW.job_id, NEW.run_id));
    END IF;
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION cerebro._tell_change() IS 'Internal: NOTIFY cerebro_runs where the status of a run or a job changes.';
DROP TRIGGER IF EXISTS tell_change ON cerebro.catalog_runs;
DROP TRIGGER IF EXISTS tell_new ON cerebro.catalog_runs;
DROP TRIGGER IF EXISTS tell_change ON cerebro.catalog_job_events;
{%- if dialect.triggers_write %}
CREATE TRIGGER tell_change AFTER UPDATE OF status ON cerebro.catalog_runs
    FOR EACH ROW WHEN (OLD.status IS DISTINCT FROM NEW.status) EXECUTE PROCEDURE cerebro._tell_change();
CREATE TRIGGER tell_new AFTER INSERT ON cerebro.catalog_runs
    FOR EACH ROW EXECUTE PROCEDURE cerebro._tell_change();
CREATE TRIGGER tell_change AFTER INSERT ON cerebro.catalog_job_events
    FOR EACH ROW WHEN (NEW.action NOT IN ('told', 'done', 'cancel')) EXECUTE PROCEDURE cerebro._tell_change();
{%- endif %}

CREATE OR REPLACE FUNCTION cerebro._held_locks() RETURNS bigint[]
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN coalesce((SELECT array_agg(k.key) FROM ({{ dialect.held_locks }}) k), '{}');
END
$$;
COMMENT ON FUNCTION cerebro._held_locks() IS 'Internal: the advisory locks of this database that are held.';

CREATE OR REPLACE FUNCTION cerebro._nth_start(place bigint, free bigint, ends timestamptz[], seconds double precision)
RETURNS timestamptz LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE WHEN $1 <= $2 THEN now()
                ELSE ($3)[1 + (($1 - greatest($2, 0) - 1) % nullif(cardinality($3), 0))]
                     + (($1 - greatest($2, 0) - 1) / nullif(cardinality($3), 0)) * $4 * interval '1 second'
           END
$$;
COMMENT ON FUNCTION cerebro._nth_start(bigint, bigint, timestamptz[], double precision) IS
'Internal: when a job at a place of the queue begins, where so many begin at once, others end at these times, and each takes so many seconds.';

-- What is computed from the jobs of others is a place in the queue, and when it is their turn.
{%- if dialect.views_join_locks %}
CREATE VIEW cerebro.jobs WITH (security_barrier) AS
WITH last AS (
    SELECT DISTINCT ON (e.job_id) e.job_id, e.action, e.message, e.logged
      FROM cerebro.catalog_job_events e WHERE e.action IN {{ stands }} ORDER BY e.job_id, e.event_id DESC
), runs AS (
    SELECT DISTINCT ON (e.job_id) e.job_id, e.run_id
      FROM cerebro.catalog_job_events e WHERE e.action = 'run' ORDER BY e.job_id, e.event_id DESC
), starts AS (
    SELECT e.job_id, count(*) AS attempts, min(e.logged) AS first, max(e.logged) AS latest
      FROM cerebro.catalog_job_events e WHERE e.action = 'started' GROUP BY e.job_id
), every AS (
    SELECT j.*, l.action, l.message, l.logged, r.run_id, coalesce(s.attempts, 0) AS attempts, s.first, s.latest,
           CASE WHEN l.action IN {{ ends }} THEN l.action
                WHEN j.lock_key = ANY ((SELECT cerebro._held_locks())::bigint[]) THEN 'running'
                -- On a standby nobody sees the locks of the primary, and nothing is interrupted by that.
                WHEN l.action = 'started' AND pg_is_in_recovery() THEN 'running'
                WHEN l.action = 'started' THEN 'interrupted'
                ELSE 'queued'
           END AS status
      FROM cerebro.catalog_jobs j
      LEFT JOIN last l ON l.job_id = j.job_id
      LEFT JOIN runs r ON r.job_id = j.job_id
      LEFT JOIN starts s ON s.job_id = j.job_id
), turns AS (
    SELECT w.job_id, w.priority, w.status,
           row_number() OVER (PARTITION BY w.owner ORDER BY w.status, w.priority DESC, w.job_id) AS place_of_role,
           (SELECT count(*) FROM every g WHERE g.status = 'running' AND g.owner = w.owner) AS going,
           (SELECT max(g.latest) FROM every g WHERE g.owner = w.owner) AS last_start
      FROM every w WHERE w.status IN ('interrupted', 'queued')
), waiting AS (
    SELECT t.job_id, t.place_of_role,
           row_number() OVER (ORDER BY t.priority DESC, t.going + t.place_of_role, t.last_start NULLS FIRST, t.status,
                                       t.job_id) AS place
      FROM turns t
), lasting AS (
    SELECT extract(epoch FROM avg(t.logged - t.first)) AS seconds
      FROM (SELECT x.logged, x.first FROM every x WHERE x.status = 'finished' AND x.first IS NOT NULL
             ORDER BY x.logged DESC LIMIT 20) t
), going AS (
    SELECT g.owner, greatest(now(), coalesce(
               -- By the hops of its run, else as long as others took.
               -- What its owner has written may be any numbers.
               (SELECT to_timestamp(least(extract(epoch FROM now()) + (p.planned - h.done) / h.done
                                              * (extract(epoch FROM now() - coalesce(r.resumed, r.started)) + r.active)::double precision,
                                          extract(epoch FROM timestamptz '3000-01-01')))
                  FROM cerebro.catalog_runs r
                 CROSS JOIN LATERAL (SELECT count(*) AS done FROM cerebro.catalog_hops o WHERE o.run_id = r.run_id) h
                 CROSS JOIN LATERAL (
                     SELECT sum(coalesce(c.stopped_epoch, c.budget, r.num_iterations))::double precision * r.num_partitions AS planned
                       FROM cerebro.catalog_configurations c
                      WHERE c.run_id = r.run_id AND c.status NOT IN ('failed', 'cancelled')) p
                 WHERE r.run_id = g.run_id AND h.done > 0 AND p.planned >= h.done AND r.started IS NOT NULL),
               g.latest + (SELECT l.seconds FROM lasting l) * interval '1 second')) AS ends
      FROM every g WHERE g.status = 'running'
), most AS (
    SELECT max(CASE s.name WHEN 'max_jobs' THEN s.value::bigint END) AS jobs,
           max(CASE s.name WHEN 'max_jobs_of_role' THEN s.value::bigint END) AS of_role
      FROM cerebro.settings s WHERE s.name IN ('max_jobs', 'max_jobs_of_role')
)
SELECT v.job_id, cerebro._role_name(v.owner) AS owner,
       {{ called('v.calls') }} AS call,
       v.run_id, v.status, v.priority, v.schedule, v.submitted, v.first AS started,
       CASE WHEN v.action IN {{ ends }} THEN v.logged END AS finished, v.attempts, w.place,
       (SELECT CASE WHEN e.by_all IS NOT NULL AND e.by_role IS NOT NULL THEN greatest(e.by_all, e.by_role) END
          FROM (SELECT cerebro._nth_start(w.place, m.jobs - (SELECT count(*) FROM going),
                                          ARRAY(SELECT g.ends FROM going g ORDER BY 1),
                                          (SELECT l.seconds FROM lasting l)) AS by_all,
                       cerebro._nth_start(w.place_of_role,
                                          m.of_role - (SELECT count(*) FROM going g WHERE g.owner = v.owner),
                                          ARRAY(SELECT g.ends FROM going g WHERE g.owner = v.owner ORDER BY 1),
                                          (SELECT l.seconds FROM lasting l)) AS by_role) e) AS estimated_start,
       v.message AS error
  FROM every v
 CROSS JOIN most m
  LEFT JOIN waiting w ON w.job_id = v.job_id
 WHERE pg_has_role(v.owner, 'USAGE') OR pg_has_role('cerebro_admin', 'USAGE');
{%- else %}
-- Locks are looked up once, beforehand, as for cerebro.runs, and nothing of the jobs of others but a place in the queue is
-- computed: the view above ends the server here.
{%- set held = "COALESCE(ARRAY(SELECT k.key FROM (" ~ dialect.held_locks ~ ") k), '{}')" %}
{%- set last = "(SELECT DISTINCT ON (e.job_id) e.job_id, e.action, e.message, e.logged
               FROM cerebro.catalog_job_events e WHERE e.action IN " ~ stands ~ "
              ORDER BY e.job_id, e.event_id DESC)" %}
CREATE VIEW cerebro.jobs WITH (security_barrier) AS
SELECT j.job_id, cerebro._role_name(j.owner) AS owner, {{ called('j.calls') }} AS call, r.run_id,
       CASE WHEN l.action IN {{ ends }} THEN l.action
            WHEN j.lock_key = ANY ({{ held }}) THEN 'running'
            WHEN l.action = 'started' THEN 'interrupted'
            ELSE 'queued'
       END AS status,
       j.priority, j.schedule, j.submitted, s.first AS started,
       CASE WHEN l.action IN {{ ends }} THEN l.logged END AS finished, coalesce(s.attempts, 0) AS attempts,
       w.place, NULL::timestamptz AS estimated_start, l.message AS error
  FROM cerebro._jobs j
  LEFT JOIN {{ last }} l ON l.job_id = j.job_id
  LEFT JOIN (SELECT t.job_id, row_number() OVER (ORDER BY t.priority DESC, t.going + t.place_of_role,
                                                          t.last_start NULLS FIRST, t.is_new, t.job_id) AS place
               FROM (SELECT q.job_id, q.priority, b.action IS DISTINCT FROM 'started' AS is_new,
                            row_number() OVER (PARTITION BY q.owner
                                               ORDER BY b.action IS DISTINCT FROM 'started', q.priority DESC,
                                                        q.job_id) AS place_of_role,
                            coalesce(g.jobs, 0) AS going, z.last_start
                       FROM cerebro.catalog_jobs q
                       LEFT JOIN {{ last }} b ON b.job_id = q.job_id
                       LEFT JOIN (SELECT o.owner, count(*) AS jobs FROM cerebro.catalog_jobs o
                                   WHERE o.lock_key = ANY ({{ held }}) GROUP BY o.owner) g ON g.owner = q.owner
                       LEFT JOIN (SELECT x.owner, max(e.logged) AS last_start
                                    FROM cerebro.catalog_job_events e JOIN cerebro.catalog_jobs x ON x.job_id = e.job_id
                                   WHERE e.action = 'started' GROUP BY x.owner) z ON z.owner = q.owner
                      WHERE coalesce(b.action, 'queued') NOT IN {{ ends }} AND NOT q.lock_key = ANY ({{ held }})) t) w
    ON w.job_id = j.job_id
  LEFT JOIN (SELECT DISTINCT ON (e.job_id) e.job_id, e.run_id
               FROM cerebro.catalog_job_events e WHERE e.action = 'run'
              ORDER BY e.job_id, e.event_id DESC) r ON r.job_id = j.job_id
  LEFT JOIN (SELECT e.job_id, count(*) AS attempts, min(e.logged) AS first
               FROM cerebro.catalog_job_events e WHERE e.action = 'started' GROUP BY e.job_id) s
    ON s.job_id = j.job_id;
{%- endif %}
COMMENT ON VIEW cerebro.jobs IS
'Your jobs, or every job for members of cerebro_admin: calls with wait := false, and those of schedules. status: queued, running, interrupted (goes on by itself), finished, failed, cancelled, paused, skipped; place: in the queue.';

CREATE VIEW cerebro.job_log WITH (security_barrier) AS
SELECT e.job_id, e.logged, e.action, e.run_id, e.message FROM cerebro._job_events e;
COMMENT ON VIEW cerebro.job_log IS 'What became of each job, and its lines, in the order of logged.';

CREATE VIEW cerebro.schedules WITH (security_barrier) AS
SELECT cerebro._role_name(s.owner) AS owner, s.name, s.cron, s.timer,
       {{ called('s.calls') }} AS call, s.calls, s.on_success,
       s.priority, s.created, j.job_id AS last_job_id, j.status AS last_status, j.submitted AS last_start,
       j.finished AS last_end, s.due AS next_start,
       -- A timer looks once a minute; what is later than that was not started by it.
       s.due < now() - interval '5 minutes' AS is_overdue
  FROM cerebro.catalog_schedules s
  LEFT JOIN (SELECT DISTINCT ON (o.owner, o.schedule) o.owner, o.schedule, o.job_id, o.status, o.submitted, o.finished
               FROM cerebro.jobs o WHERE o.schedule IS NOT NULL ORDER BY o.owner, o.schedule, o.job_id DESC) j
    ON j.owner = cerebro._role_name(s.owner) AND j.schedule = s.name
 WHERE pg_has_role(s.owner, 'USAGE') OR pg_has_role('cerebro_admin', 'USAGE');
COMMENT ON VIEW cerebro.schedules IS
'Your schedules, or all of them for members of cerebro_admin: the last start of each, and the next one. is_overdue: the next start is more than five minutes late, so that its timer (pg_cron, crontab, cerebro daemon) does not run, or may not start it; NULL where that is not known.';

-- What nobody needs any more: not what the registry tells of, whoever has registered it.
CREATE VIEW cerebro._old_runs WITH (security_barrier) AS
SELECT r.run_id FROM cerebro.catalog_runs r
 WHERE r.owner = cerebro._role()
   AND r.status NOT IN ('queued', 'starting', 'running')
   AND greatest(r.created, r.resumed, r.finished)
       < now() - (SELECT nullif(s.value, '')::interval FROM cerebro.settings s WHERE s.name = 'keep_runs')
   AND NOT EXISTS (SELECT 1 FROM cerebro.catalog_model_versions v WHERE v.run_id = r.run_id);
COMMENT ON VIEW cerebro._old_runs IS 'Internal: runs of the caller that ended before what keep_runs says, and which no registered model is of.';

GRANT SELECT ON cerebro.jobs, cerebro.job_log, cerebro.schedules, cerebro._old_runs TO cerebro_user;
{% for view in views %}
ALTER VIEW cerebro.{{ view }} OWNER TO cerebro_owner;
{%- endfor %}

-- How many go on now, of which role; what one role has beyond its share does not count for others.
CREATE OR REPLACE FUNCTION cerebro._may_start(job_id bigint) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    held    bigint[] := cerebro._held_locks();
    most    bigint := (SELECT s.value::bigint FROM cerebro.settings s WHERE s.name = 'max_jobs');
    of_role bigint := (SELECT s.value::bigint FROM cerebro.settings s WHERE s.name = 'max_jobs_of_role');
    whose   oid := (SELECT j.owner FROM cerebro.catalog_jobs j WHERE j.job_id = $1);
BEGIN
    RETURN coalesce((SELECT sum(least(o.jobs, of_role)) < most
                       AND coalesce(max(CASE WHEN o.owner = whose THEN o.jobs END), 0) < of_role
                       FROM (SELECT j.owner, count(*) AS jobs FROM cerebro.catalog_jobs j
                              WHERE j.lock_key = ANY (held) AND j.job_id <> $1 GROUP BY j.owner) o),
                    most > 0 AND of_role > 0);
END
$$;
ALTER FUNCTION cerebro._may_start(bigint) OWNER TO cerebro_owner;
COMMENT ON FUNCTION cerebro._may_start(bigint) IS 'Internal: whether one more job of that owner may go on beside those that do.';

CREATE OR REPLACE FUNCTION cerebro._start_job(job_id bigint, role text)
RETURNS boolean LANGUAGE plpython3u AS {{ plpython('return relay.driver("jobs.work", job_id, role)') }};
COMMENT ON FUNCTION cerebro._start_job(bigint, text) IS
'Internal: starts a driver that goes on with a job as its owner. Only the owner of the catalog may call it.';

-- The one way to it: what is started is read from the catalog, and as whom. One at a time looks for room: by a lock that
-- nobody else can take, and which is let go before this returns, so that no transaction of a caller can keep it. Roles
-- have their turns: the second job of one comes after the first ones of all others, and who was served last comes last.
CREATE OR REPLACE FUNCTION cerebro._start_jobs() RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '10s' AS $$
DECLARE
    held    bigint[];
    tried   bigint[] := '{}';
    failing {{ owner_type }}[] := '{}';
    most    bigint;
    of_role bigint;
    going   bigint;
    next    record;
    started integer := 0;
    failed  bigint[] := '{}';
    whys    text[] := '{}';
BEGIN
    IF pg_is_in_recovery() OR NOT EXISTS (
            SELECT 1 FROM cerebro.catalog_jobs j
             WHERE NOT j.ended AND NOT EXISTS (SELECT 1 FROM cerebro.catalog_job_events e
                                                WHERE e.job_id = j.job_id AND e.action IN {{ ends }})) THEN
        RETURN 0;
    END IF;
    most := (SELECT s.value::bigint FROM cerebro.settings s WHERE s.name = 'max_jobs');
    of_role := (SELECT s.value::bigint FROM cerebro.settings s WHERE s.name = 'max_jobs_of_role');
    BEGIN
        LOCK TABLE cerebro.catalog_queue IN EXCLUSIVE MODE;
        LOOP
            held := cerebro._held_locks();
            going := (SELECT coalesce(sum(least(o.jobs, of_role)), 0)
                        FROM (SELECT count(*) AS jobs FROM cerebro.catalog_jobs j
                               WHERE j.lock_key = ANY (held) GROUP BY j.owner) o);
            EXIT WHEN going >= most OR of_role = 0;
            SELECT w.job_id, w.owner, w.role INTO next FROM (
                SELECT j.job_id, j.owner, r.rolname::text AS role, j.priority, j.begun,
                       coalesce(g.jobs, 0) AS going, s.last_start,
                       row_number() OVER (PARTITION BY j.owner ORDER BY j.begun DESC, j.priority DESC, j.job_id) AS place
                  FROM (SELECT a.job_id, a.owner, a.priority, a.lock_key,
                               EXISTS (SELECT 1 FROM cerebro.catalog_job_events e
                                        WHERE e.job_id = a.job_id AND e.action = 'started') AS begun
                          FROM cerebro.catalog_jobs a
                         WHERE NOT a.ended AND NOT EXISTS (SELECT 1 FROM cerebro.catalog_job_events e
                                                            WHERE e.job_id = a.job_id AND e.action IN {{ ends }})) j
                  LEFT JOIN (SELECT o.owner, count(*) AS jobs FROM cerebro.catalog_jobs o
                              WHERE o.lock_key = ANY (held) GROUP BY o.owner) g ON g.owner = j.owner
                  LEFT JOIN (SELECT l.owner, max(l.event_id) AS last_start
                               FROM (SELECT x.owner, e.event_id FROM cerebro.catalog_job_events e
                                       JOIN cerebro.catalog_jobs x ON x.job_id = e.job_id
                                      WHERE e.action = 'started' ORDER BY e.event_id DESC LIMIT 100) l
                              GROUP BY l.owner) s ON s.owner = j.owner
                  LEFT JOIN pg_catalog.pg_roles r ON r.oid = j.owner
                 WHERE NOT j.lock_key = ANY (held) AND NOT j.job_id = ANY (tried) AND NOT j.owner = ANY (failing)) w
             WHERE w.going < of_role
             ORDER BY w.priority DESC, w.going + w.place, w.last_start NULLS FIRST, w.begun DESC, w.job_id
             LIMIT 1;
            EXIT WHEN next.job_id IS NULL;
            tried := tried || next.job_id;
            BEGIN
                IF next.role IS NULL THEN
                    RAISE EXCEPTION USING ERRCODE = '42704', MESSAGE = 'the role that submitted it was dropped';
                END IF;
                IF cerebro._start_job(next.job_id, next.role) THEN
                    started := started + 1;
                END IF;
            EXCEPTION WHEN OTHERS THEN
                -- Where there is no room, or the server is about to end, it waits for a later time: so it does where the
                -- session of whoever calls this has no room. A connection limit of the role, for example, is no reason for
                -- others to wait.
                IF left(SQLSTATE, 2) IN ('40', '53', '54', '55', '57', '58', 'YC') THEN
                    RAISE WARNING USING ERRCODE = SQLSTATE,
                        MESSAGE = format('job %s was not started: %s', next.job_id, SQLERRM),
                        HINT = 'it stays in the queue, and is tried again; jobs of other roles go on';
                    EXIT WHEN left(SQLSTATE, 2) = '57';
                    failing := failing || next.owner;
                ELSE
                    failed := failed || next.job_id;
                    whys := whys || regexp_replace(SQLERRM, '^cerebro: ', '');
                END IF;
            END;
        END LOOP;
        -- With what is rolled back here the lock goes; drivers have sessions of their own.
        RAISE EXCEPTION USING ERRCODE = 'YC099', MESSAGE = 'the lock of the queue is let go';
    EXCEPTION
    WHEN lock_not_available THEN
        NULL;  -- somebody else starts jobs, these among them
    WHEN SQLSTATE 'YC099' THEN
        NULL;
    END;
    FOR place IN 1 .. coalesce(array_length(failed, 1), 0) LOOP
        PERFORM cerebro._job_failed(failed[place], whys[place]);
    END LOOP;
    RETURN started;
END
$$;
ALTER FUNCTION cerebro._start_jobs() OWNER TO cerebro_owner;
COMMENT ON FUNCTION cerebro._start_jobs() IS
'Internal: starts drivers for jobs that wait and for those that nobody drives any more, as far as there may be; returns how many.';

-- The owner may have lost the right to write that down.
CREATE OR REPLACE FUNCTION cerebro._job_failed(job_id bigint, message text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    message text := left(regexp_replace($2, '[\x01-\x08\x0b\x0c\x0e-\x1f\x7f]', '?', 'g'), 10000);
    held bigint[] := cerebro._held_locks();
    ended timestamptz := clock_timestamp();  -- one for all segments that have a copy of the run
BEGIN
    INSERT INTO cerebro.catalog_job_events (job_id, action, message) VALUES ($1, 'failed', message);
    UPDATE cerebro.catalog_runs AS r SET status = 'failed', error = message, finished = ended
     WHERE r.run_id = (SELECT e.run_id FROM cerebro.catalog_job_events e
                        WHERE e.job_id = $1 AND e.action = 'run' ORDER BY e.event_id DESC LIMIT 1)
       AND r.owner = (SELECT j.owner FROM cerebro.catalog_jobs j WHERE j.job_id = $1)
       AND r.status IN ('queued', 'starting', 'running') AND NOT r.lock_key = ANY (held);
END
$$;
ALTER FUNCTION cerebro._job_failed(bigint, text) OWNER TO cerebro_owner;
COMMENT ON FUNCTION cerebro._job_failed(bigint, text) IS
'Internal: writes down that a job, and its run, cannot be started. Only the owner of the catalog may call it.';

-- A transaction in which somebody has called this keeps nobody else from it.
{{ head('cerebro_work') }}
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '2s' AS $$
DECLARE
    kept    interval := (SELECT nullif(s.value, '')::interval FROM cerebro.settings s WHERE s.name = 'keep_runs');
    another record;
    number  bigint;
    started integer := cerebro._start_jobs();
BEGIN
    IF pg_is_in_recovery() THEN  -- the primary does all that follows
        RETURN 0;
    END IF;
    -- A timer that may not call as the owner of a schedule leaves no job: that is logged here, once a day.
    FOR another IN
        SELECT w.* FROM (
            SELECT s.*, CASE WHEN r.oid IS NULL THEN 'the role that made it was dropped'
                             WHEN NOT r.rolcanlogin THEN format('role %I may not log in', r.rolname)
                             WHEN NOT pg_has_role(r.oid, 'cerebro_user', 'USAGE')
                             THEN format('role %I is no member of cerebro_user', r.rolname)
                        END AS why
              FROM cerebro.catalog_schedules s LEFT JOIN pg_catalog.pg_roles r ON r.oid = s.owner) w
         WHERE w.why IS NOT NULL
           AND NOT EXISTS (SELECT 1 FROM cerebro.catalog_jobs j
                             JOIN cerebro.catalog_job_events e ON e.job_id = j.job_id AND e.action = 'failed'
                            WHERE j.owner = w.owner AND j.schedule = w.name AND e.logged > now() - interval '1 day'
                              AND e.message = 'the schedule cannot be started: ' || w.why)
    LOOP
        INSERT INTO cerebro.catalog_jobs (owner, calls, session, schedule, lock_key)
        VALUES (another.owner, another.calls, another.session, another.name, cerebro._lock_number())
        RETURNING job_id INTO number;
        INSERT INTO cerebro.catalog_job_events (job_id, action, message)
        VALUES (number, 'failed', 'the schedule cannot be started: ' || another.why);
    END LOOP;
    -- What is added here is started at the next call: until this transaction ends nobody else sees it.
    IF kept IS NOT NULL THEN
        FOR another IN
            -- One at a time for each role, which removes its own: its states are tables that belong to it.
            SELECT r.owner FROM cerebro.catalog_runs r
             WHERE r.status NOT IN ('queued', 'starting', 'running')
               AND greatest(r.created, r.resumed, r.finished) < now() - kept
               AND NOT EXISTS (SELECT 1 FROM cerebro.catalog_model_versions v WHERE v.run_id = r.run_id)
               AND NOT EXISTS (SELECT 1 FROM cerebro.catalog_jobs j
                                WHERE j.owner = r.owner AND j.schedule = 'keep_runs'
                                  AND j.submitted > now() - interval '1 hour')
             GROUP BY r.owner
        LOOP
            INSERT INTO cerebro.catalog_jobs (owner, calls, session, priority, schedule, lock_key)
            VALUES (another.owner, '[["keep_runs", {}]]', '{}', -100, 'keep_runs', cerebro._lock_number())
            RETURNING job_id INTO number;
            INSERT INTO cerebro.catalog_job_events (job_id, action) VALUES (number, 'queued');
        END LOOP;
        BEGIN
            DELETE FROM cerebro.catalog_jobs j
             WHERE EXISTS (SELECT 1 FROM cerebro.catalog_job_events e
                            WHERE e.job_id = j.job_id AND e.action IN {{ ends }} AND e.logged < now() - kept);
            DELETE FROM cerebro.catalog_job_events e
             WHERE e.logged < now() - kept AND NOT EXISTS (SELECT 1 FROM cerebro.catalog_jobs j WHERE j.job_id = e.job_id);
        EXCEPTION WHEN lock_not_available THEN
            NULL;  -- somebody removes them, in a transaction that has not ended
        END;
    END IF;
    RETURN started;
END
$$;
ALTER FUNCTION cerebro.cerebro_work() OWNER TO cerebro_owner;
{{ comment('cerebro_work') }}

CREATE OR REPLACE FUNCTION cerebro._lock_number() RETURNS bigint
LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
    SELECT ('x' || left(md5(random()::text || clock_timestamp()::text || pg_backend_pid()), 16))::bit(64)::bigint
$$;
COMMENT ON FUNCTION cerebro._lock_number() IS 'Internal: a random key for the lock of a job.';

CREATE OR REPLACE FUNCTION cerebro._wait_for(what text, number bigint, seconds double precision)
RETURNS text LANGUAGE plpython3u AS {{ plpython('return relay.driver("jobs.wait_for", what, number, seconds)') }};
COMMENT ON FUNCTION cerebro._wait_for(text, bigint, double precision) IS
'Internal: cerebro_wait and cerebro_wait_job with seconds.';

{{ head('cerebro_wait') }} LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
    SELECT cerebro._wait_for('run', $1, extract(epoch FROM $2)::double precision)
$$;
{{ comment('cerebro_wait') }}

{{ head('cerebro_wait_job') }} LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
    SELECT cerebro._wait_for('job', $1, extract(epoch FROM $2)::double precision)
$$;
{{ comment('cerebro_wait_job') }}

{{ function('cerebro_cancel_job') }}

{{ function('cerebro_promote_if_better') }}

{{ function('cerebro_submit') }}

{{ function('cerebro_schedule') }}

{{ function('cerebro_unschedule') }}

{{ function('cerebro_start_schedule') }}

-- With pg_cron in this database what waits, and what a restart of the server has ended, goes on by itself.
DO $cron$
BEGIN
    IF EXISTS (SELECT 1 FROM pg_catalog.pg_extension WHERE extname = 'pg_cron') THEN
        EXECUTE 'SELECT cron.schedule(''cerebro jobs'', ''* * * * *'', ''SELECT cerebro.cerebro_work()'')';
        EXECUTE 'SELECT cron.schedule(''cerebro jobs at start'', ''@reboot'', ''SELECT cerebro.cerebro_work()'')';
    END IF;
END
$cron$;
