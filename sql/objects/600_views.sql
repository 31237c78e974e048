-- What is seen of runs while they go on and afterwards.

DROP VIEW IF EXISTS cerebro.dashboard;
DROP VIEW IF EXISTS cerebro.folds;
DROP VIEW IF EXISTS cerebro.direct_workers, cerebro._direct_answers, cerebro._direct_orders, cerebro._direct_workers;
DROP VIEW IF EXISTS cerebro.schedules, cerebro.job_log, cerebro.jobs, cerebro._old_runs, cerebro._schedules,
    cerebro._job_events, cerebro._jobs;
DROP VIEW IF EXISTS cerebro._settings;
DROP VIEW IF EXISTS cerebro.searches;
DROP VIEW IF EXISTS cerebro.trials;
{%- set views = ['registered_functions', 'progress', '_pace', '_hops_of', 'leaderboard', '_statuses', '_worker_times', 'metrics', 'decisions', 'updates', 'hops', 'runs', 'settings', '_requests',
                 '_metrics', '_updates', '_hops', '_decisions', '_plan', '_architectures', '_architecture_keys', '_configurations', '_runs'] %}
{% for view in views %}
DROP VIEW IF EXISTS cerebro.{{ view }};
{%- endfor %}

-- Through these a driver reads the catalog: runs of the caller's role, or of a role that the caller has the rights of;
-- for administrators every run. It is written by the functions of 660_writers.sql.
CREATE VIEW cerebro._runs WITH (security_barrier) AS
SELECT r.* FROM cerebro.catalog_runs r
 WHERE pg_has_role(r.owner, 'USAGE') OR pg_has_role('cerebro_admin', 'USAGE');
COMMENT ON VIEW cerebro._runs IS 'Internal: the runs that the caller may see.';
{% for table in ['configurations', 'plan', 'decisions', 'hops', 'updates', 'metrics', 'requests'] %}
CREATE VIEW cerebro._{{ table }} WITH (security_barrier) AS
SELECT t.* FROM cerebro.catalog_{{ table }} t
 WHERE EXISTS (SELECT 1 FROM cerebro._runs r WHERE r.run_id = t.run_id);
COMMENT ON VIEW cerebro._{{ table }} IS 'Internal: rows of the runs that the caller may see.';
{% endfor %}
-- Models are their owner's alone; administrators remove what is left of them.
CREATE VIEW cerebro._architectures WITH (security_barrier) AS
SELECT t.* FROM cerebro.catalog_architectures t
 WHERE EXISTS (SELECT 1 FROM cerebro._runs r
                WHERE r.run_id = t.run_id AND pg_has_role(r.owner, 'USAGE'));
COMMENT ON VIEW cerebro._architectures IS 'Internal: the models of the runs of the caller.';

CREATE VIEW cerebro._architecture_keys WITH (security_barrier) AS
SELECT t.run_id, t.model_id,
       -- Runs of earlier versions had models of one framework only, which their facts do not name.
       coalesce(substring(t.model_facts from '"framework":"([a-z0-9_]{1,63})"'), 'tensorflow') AS framework
  FROM cerebro.catalog_architectures t
 WHERE EXISTS (SELECT 1 FROM cerebro._runs r WHERE r.run_id = t.run_id);
COMMENT ON VIEW cerebro._architecture_keys IS 'Internal: which models there are of the runs that the caller may see.';

GRANT SELECT ON cerebro._runs, cerebro._configurations, cerebro._architectures, cerebro._architecture_keys, cerebro._plan,
    cerebro._decisions, cerebro._hops, cerebro._updates, cerebro._metrics, cerebro._requests TO cerebro_user;

CREATE VIEW cerebro.settings WITH (security_barrier) AS
SELECT d.name, coalesce(s.value, d.value) AS value, d.value AS default_value, d.description
  FROM (VALUES
{%- for setting in settings %}
       ({{ setting.name | sql_string }}, {{ setting.default | sql_string }}, {{ setting.description | sql_string }})
       {{- "," if not loop.last }}
{%- endfor %}) AS d (name, value, description)
  LEFT JOIN cerebro.catalog_settings s ON s.name = d.name
 WHERE d.name <> 'worker_dsn' OR pg_has_role('cerebro_admin', 'USAGE');
COMMENT ON VIEW cerebro.settings IS
'What an administrator has set with cerebro_set, and the defaults.';

CREATE VIEW cerebro.registered_functions WITH (security_barrier) AS
SELECT f.name, f.path, f.package, f.version, f.places, cerebro._role_name(f.registered_by) AS registered_by,
       f.registered, f.expression
  FROM cerebro.catalog_functions f;
COMMENT ON VIEW cerebro.registered_functions IS
'Functions of installed packages, and expressions, that parameters may name as custom.name.';

-- A driver holds the advisory lock of its run for as long as it lives.
{%- set run_columns %}
       r.error, r.source_table,
       r.validation_table, r.model_output_table, r.model_selection_table, r.num_iterations,
       r.metrics_compute_frequency, r.warm_start, r.seed, r.num_partitions, r.num_workers,
       r.threads, r.durability, r.schedule, r.strategy_params, r.manifest, r.created, r.started, r.resumed, r.finished
{%- endset %}
CREATE VIEW cerebro.runs WITH (security_barrier) AS
SELECT r.run_id, cerebro._role_name(r.owner) AS owner, r.name, r.description,
{%- if dialect.views_join_locks %}
       -- On a standby nobody sees the locks of the primary: there it is as the primary has written it down.
       CASE WHEN r.status IN ('starting', 'running') AND NOT pg_is_in_recovery() AND NOT EXISTS (
                SELECT 1 FROM ({{ dialect.held_locks }}) k WHERE k.pid = r.driver_pid AND k.key = r.lock_key)
{%- else %}
       -- Once, beforehand. An array without elements comes to the segments as NULL, which would compare to nothing.
       CASE WHEN r.status IN ('starting', 'running')
             AND r.driver_pid || '/' || r.lock_key <> ALL (COALESCE(ARRAY(
                     SELECT k.pid || '/' || k.key FROM ({{ dialect.held_locks }}) k), '{}'))
{%- endif %}
            THEN 'interrupted' ELSE r.status
       END AS status,{{ run_columns }}
  FROM cerebro._runs r;
COMMENT ON VIEW cerebro.runs IS 'Your runs, or every run for members of cerebro_admin: what was asked for, its status, its manifest. A run whose driver is gone is interrupted; on a hot standby, which does not see drivers, it is as the primary has it written down.';

CREATE VIEW cerebro.hops WITH (security_barrier) AS
SELECT h.run_id, h.mst_key, h.epoch, h.position, h.partition_key, h.worker, h.pid, h.started,
       h.finished, h.waited, h.read, h.trained, h.written, h.rows, h.loss, h.compiled, h.cached,
       h.memory_mb
  FROM cerebro._hops h;
COMMENT ON VIEW cerebro.hops IS
'One row a hop: a configuration over one partition. Seconds that the worker waited before, read, trained and wrote.';

CREATE VIEW cerebro.updates WITH (security_barrier) AS
SELECT u.run_id, u.mst_key, u.epoch, u.round * array_length(u.counts, 1) + p.place AS position,
       u.groups, (p.place::bigint * u.groups / array_length(u.counts, 1))::integer AS group_number,
       u.counts[p.place + 1] AS updates, u.staleness[p.place + 1] AS staleness,
       u.stalest[p.place + 1] AS stalest, u.momentum, u.learning_rate, nullif(u.probes, '') AS probes
  FROM cerebro._updates u CROSS JOIN LATERAL generate_series(0, array_length(u.counts, 1) - 1) AS p(place);
COMMENT ON VIEW cerebro.updates IS
'One row a hop whose weights a parameter server held: its group, the updates of that, how many updates of others each of them had not seen, and how groups were chosen.';

CREATE VIEW cerebro.metrics WITH (security_barrier) AS
SELECT m.run_id, m.mst_key, m.epoch, m.dataset, m.loss, m.metric_names, m.metrics, m.elapsed
  FROM cerebro._metrics m;
COMMENT ON VIEW cerebro.metrics IS
'Loss and metrics of each configuration by epoch, on the training and the validation table.';

CREATE VIEW cerebro.decisions WITH (security_barrier) AS
SELECT d.run_id, d.number, d.mst_key, d.action, d.epochs, d.source, d.source_epoch, d.reason,
       nullif(d.who, '') AS decided_by, d.detail, d.decided
  FROM cerebro._decisions d;
COMMENT ON VIEW cerebro.decisions IS
'What changed the set of configurations of each run, in the order in which it was decided.';

-- The status of each configuration, which all else reads here; cerebro_db/core/statuses.py has what each means.
-- Of a search what was decided last counts, and who has come to its budget waits for what is decided then.
CREATE VIEW cerebro._statuses WITH (security_barrier) AS
SELECT c.run_id, c.mst_key,
       CASE WHEN c.status IN ('failed', 'cancelled') THEN c.status
            WHEN d.action = 'stop' THEN 'stopped'
            WHEN c.status IN ('finished', 'stopped') THEN c.status
            WHEN r.status NOT IN ('queued', 'starting', 'running') THEN 'stopped'
            WHEN c.status = 'training' AND m.epoch >= c.budget AND d.action IS NOT NULL THEN 'waiting'
            ELSE c.status
       END AS status
  FROM cerebro._configurations c
  JOIN cerebro.runs r ON r.run_id = c.run_id
  LEFT JOIN (SELECT DISTINCT ON (n.run_id, n.mst_key) n.run_id, n.mst_key, n.action FROM cerebro._decisions n
              ORDER BY n.run_id, n.mst_key, n.number DESC) d ON d.run_id = c.run_id AND d.mst_key = c.mst_key
  LEFT JOIN (SELECT x.run_id, x.mst_key, max(x.epoch) AS epoch FROM cerebro._metrics x GROUP BY x.run_id, x.mst_key) m
    ON m.run_id = c.run_id AND m.mst_key = c.mst_key;
COMMENT ON VIEW cerebro._statuses IS 'Internal: the status of each configuration.';

-- Where the time of each worker went, from its first hop to its last: what is neither hop nor waiting is scoring.
CREATE VIEW cerebro._worker_times WITH (security_barrier) AS
SELECT i.*, CASE WHEN i.seconds > 0 THEN greatest(0, 1 - i.idle - i.busy / i.seconds) ELSE 0 END AS scoring
  FROM (SELECT t.*, CASE WHEN t.seconds <= 0 OR t.waited <= 0 THEN 0 WHEN t.waited >= t.seconds THEN 1
                         ELSE t.waited / t.seconds END AS idle
          FROM (SELECT h.run_id, h.worker, count(*) AS hops, max(h.memory_mb) AS memory_mb,
                       sum(extract(epoch FROM h.finished - h.started))::double precision AS busy,
                       coalesce(sum(CASE WHEN h.started > h.first THEN h.waited END), 0)::double precision AS waited,
                       extract(epoch FROM max(h.finished) - min(h.started))::double precision AS seconds
                  FROM (SELECT x.run_id, x.worker, x.memory_mb, x.started, x.finished, x.waited,
                               min(x.started) OVER (PARTITION BY x.run_id, x.worker) AS first
                          FROM cerebro._hops x) h
                 GROUP BY h.run_id, h.worker) t) i;
COMMENT ON VIEW cerebro._worker_times IS
'Internal: seconds of each worker in hops, without anything to do, and in all; and the shares of idleness and of scoring.';
GRANT SELECT ON cerebro._statuses, cerebro._worker_times TO cerebro_user;

-- Nothing is computed ahead in WITH, and windows are of one run: a condition on run_id reaches all tables.
{%- macro latest(dataset) %}
      LEFT JOIN (SELECT l.* FROM (
                    -- Of a configuration that has ended, those of the epoch whose state is the model.
                    SELECT m.*, coalesce(k.model_epoch, max(m.epoch) OVER (PARTITION BY m.run_id, m.mst_key)) AS last_epoch
                      FROM cerebro._metrics m
                      LEFT JOIN cerebro._configurations k ON k.run_id = m.run_id AND k.mst_key = m.mst_key
                     WHERE m.dataset = '{{ dataset }}') l
                  WHERE l.epoch = l.last_epoch)
{%- endmacro %}
CREATE VIEW cerebro.leaderboard WITH (security_barrier) AS
SELECT run_id,
       rank() OVER (PARTITION BY run_id
                    ORDER BY status IN ('failed', 'cancelled'), badness,
                             coalesce(validation_loss, training_loss)) AS rank,
       mst_key, model_id, compile_params, fit_params, status, epoch, metric_names,
       validation_metrics, validation_loss, training_metrics, training_loss, error,
       stopped_epoch, best_epoch, framework
  FROM (
    SELECT c.run_id, c.mst_key, c.model_id, c.compile_params, c.fit_params,
           s.status,
           c.error, coalesce(t.epoch, v.epoch) AS epoch, c.stopped_epoch, c.best_epoch,
           coalesce(t.metric_names, v.metric_names) AS metric_names,
           v.loss AS validation_loss, v.metrics AS validation_metrics,
           t.loss AS training_loss, t.metrics AS training_metrics,
           a.framework,
           -- The goal is the same for all configurations of a run; cerebro_db/scoring/prediction_models.py has the rule.
           CASE c.goal
               WHEN 'max' THEN -(coalesce(v.metrics, t.metrics))[1]
               WHEN 'min' THEN (coalesce(v.metrics, t.metrics))[1]
               ELSE coalesce(v.loss, t.loss)
           END AS badness
      FROM cerebro._configurations c
      JOIN cerebro._statuses s ON s.run_id = c.run_id AND s.mst_key = c.mst_key
      LEFT JOIN cerebro._architecture_keys a ON a.run_id = c.run_id AND a.model_id = c.model_id
      {{- latest('training') }} t ON t.run_id = c.run_id AND t.mst_key = c.mst_key
      {{- latest('validation') }} v ON v.run_id = c.run_id AND v.mst_key = c.mst_key) results;
COMMENT ON VIEW cerebro.leaderboard IS
'Configurations of each run, best first: by the first metric where it is the same one for all, else by loss; on the validation table (the training table where there is none).';

{%- set best_value %}CASE k.goal WHEN 'loss' THEN coalesce(b.validation_loss, b.training_loss)
                   ELSE (coalesce(b.validation_metrics, b.training_metrics))[1] END{% endset %}
-- The hops of each configuration: done, and of an epoch. Progress, dashboard, watch, client and metrics read it here.
CREATE VIEW cerebro._hops_of WITH (security_barrier) AS
SELECT c.run_id, c.mst_key, coalesce(c.stopped_epoch, c.budget, r.num_iterations) AS epochs,
       r.num_partitions::numeric * r.rounds AS an_epoch, coalesce(h.done, 0) AS done, h.rows, h.last,
       c.status IN ('failed', 'cancelled') AS is_lost
  FROM cerebro._configurations c
  JOIN cerebro._runs r ON r.run_id = c.run_id
  LEFT JOIN (SELECT x.run_id, x.mst_key, count(*) AS done, sum(x.rows) AS rows, max(x.finished) AS last
               FROM cerebro._hops x GROUP BY x.run_id, x.mst_key) h
    ON h.run_id = c.run_id AND h.mst_key = c.mst_key;
COMMENT ON VIEW cerebro._hops_of IS 'Internal: how far each configuration is.';

-- Of configurations that have failed, hops count that were done; the others are to do all of theirs.
CREATE VIEW cerebro._pace WITH (security_barrier) AS
SELECT p.*, CASE WHEN p.planned > 0 THEN least(1, p.done::double precision / p.planned) ELSE 0 END AS share,
       -- A time that is next to nothing would make numbers that no type holds.
       CASE WHEN p.seconds >= 1e-6 THEN p.rows::double precision / p.seconds END AS rows_per_second,
       CASE WHEN p.done > 0 AND p.seconds > 0
            THEN p.seconds * (greatest(0, p.planned - p.done)::numeric / p.done)::double precision
       END AS seconds_left
  FROM (SELECT r.run_id, coalesce(c.configurations, 0) AS configurations, coalesce(c.failed, 0) AS failed,
               coalesce(c.done, 0)::bigint AS done,
               least(CASE WHEN r.status = 'finished' THEN coalesce(c.done, 0) ELSE coalesce(c.planned, 0) END,
                     9223372036854775807)::bigint AS planned,
               coalesce(c.rows, 0) AS rows, c.last,
               -- What earlier drivers took, and this one so far: no time when nobody drove it.
               (r.active + greatest(0, extract(epoch FROM c.last - coalesce(r.resumed, r.started))))::double precision
                   AS seconds,
               -- All that others have proposed is done.
               r.status = 'running' AND coalesce(c.done, 0) >= coalesce(c.planned, 0)
                   AND coalesce((r.spec -> 'search') ->> 'method' = 'external', false)
                   AND coalesce((r.spec -> 'search') -> 'replays' = '[]', true) AS waits
          FROM cerebro._runs r
          LEFT JOIN (SELECT h.run_id, count(*) AS configurations, count(nullif(h.is_lost, false)) AS failed,
                            sum(h.done) AS done, sum(h.rows) AS rows, max(h.last) AS last,
                            sum(CASE WHEN h.is_lost THEN h.done ELSE h.epochs * h.an_epoch END) AS planned
                       FROM cerebro._hops_of h GROUP BY h.run_id) c ON c.run_id = r.run_id) p;
COMMENT ON VIEW cerebro._pace IS 'Internal: how far each run is, and in which time.';
GRANT SELECT ON cerebro._hops_of, cerebro._pace TO cerebro_user;

CREATE VIEW cerebro.progress WITH (security_barrier) AS
WITH epochs AS (
    -- Groups and no anti-join: with statistics that are old that is a loop over all hops for each hop of the plan.
    SELECT q.run_id, min(q.epoch) AS epoch
      FROM (SELECT u.run_id, u.epoch
              FROM (SELECT p.run_id, p.mst_key, p.epoch, p.position, NULL::integer AS done
                      FROM cerebro._plan p
                      JOIN cerebro._configurations c
                        ON c.run_id = p.run_id AND c.mst_key = p.mst_key
                       AND c.status NOT IN ('failed', 'cancelled')
                       AND p.epoch <= coalesce(c.stopped_epoch, p.epoch)
                     UNION ALL
                    SELECT h.run_id, h.mst_key, h.epoch, h.position, 1
                      FROM cerebro._hops h) u
             GROUP BY u.run_id, u.mst_key, u.epoch, u.position
            HAVING count(u.done) = 0) q
     GROUP BY q.run_id
)
SELECT r.run_id, r.name, r.status,
       coalesce(e.epoch, CASE WHEN p.done > 0 THEN r.num_iterations ELSE 0 END) AS epoch,
       r.num_iterations AS epochs, p.configurations - p.failed AS configurations, p.failed,
       p.done AS hops_done, p.planned AS hops_planned,
       round(p.rows_per_second::numeric) AS rows_per_second,
       CASE WHEN r.status = 'running' AND p.done > 0
            THEN to_timestamp(least(extract(epoch FROM p.last) + p.seconds_left,
                                    extract(epoch FROM timestamptz '3000-01-01')))
            ELSE r.finished
       END AS estimated_end,
       -- NaN is ranked last: where the first one has it, all have.
       CASE WHEN {{ best_value }} <> 'NaN' THEN b.mst_key END AS best_mst_key,
       nullif({{ best_value }}, 'NaN') AS best_so_far,
       r.created, r.started, r.finished, r.schedule AS strategy, w.reason AS strategy_reason,
       CASE WHEN p.waits AND r.status = 'running' THEN 'configurations'::text END AS waits_for
  FROM cerebro.runs r
  JOIN cerebro._pace p ON p.run_id = r.run_id
  LEFT JOIN (SELECT DISTINCT ON (run_id) run_id, reason FROM cerebro._plan
              WHERE reason IS NOT NULL ORDER BY run_id, epoch DESC, mst_key) w ON w.run_id = r.run_id
  LEFT JOIN epochs e ON e.run_id = r.run_id
  LEFT JOIN (SELECT DISTINCT ON (run_id) * FROM cerebro.leaderboard
              WHERE epoch IS NOT NULL ORDER BY run_id, rank, mst_key) b ON b.run_id = r.run_id
  LEFT JOIN cerebro._configurations k ON k.run_id = b.run_id AND k.mst_key = b.mst_key;
COMMENT ON VIEW cerebro.progress IS
'Where each run stands: epoch, hops, rows a second, estimated end, best so far.';

GRANT SELECT ON cerebro.registered_functions, cerebro.settings, cerebro.runs, cerebro.decisions, cerebro.hops, cerebro.updates, cerebro.metrics, cerebro.leaderboard,
    cerebro.progress TO cerebro_user;
{% for view in views %}
ALTER VIEW cerebro.{{ view }} OWNER TO cerebro_owner;
{%- endfor %}

