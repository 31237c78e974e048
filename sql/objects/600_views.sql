-- What is seen of runs while they go on and afterwards.

DROP VIEW IF EXISTS cerebro.progress;
DROP VIEW IF EXISTS cerebro.leaderboard;
DROP VIEW IF EXISTS cerebro.metrics;
DROP VIEW IF EXISTS cerebro.hops;
DROP VIEW IF EXISTS cerebro.runs;

CREATE VIEW cerebro.runs AS
SELECT r.run_id, r.owner, r.name, r.description,
       CASE WHEN r.status IN ('starting', 'running') AND NOT EXISTS (
                SELECT 1 FROM pg_catalog.pg_stat_activity a
                 WHERE a.pid = r.driver_pid AND coalesce(a.backend_start <= r.created, true))
            THEN 'interrupted' ELSE r.status
       END AS status,
       r.error, r.source_table,
       r.validation_table, r.model_output_table, r.model_selection_table, r.num_iterations,
       r.metrics_compute_frequency, r.warm_start, r.seed, r.num_partitions, r.num_workers,
       r.threads, r.manifest, r.created, r.started, r.finished
  FROM cerebro.catalog_runs r;
COMMENT ON VIEW cerebro.runs IS 'Every run: what was asked for, its status, its manifest. A run whose driver is gone is interrupted.';

CREATE VIEW cerebro.hops AS
SELECT h.run_id, h.mst_key, h.epoch, h.position, h.partition_key, h.worker, h.pid, h.started,
       h.finished, h.waited, h.read, h.trained, h.written, h.rows, h.loss, h.compiled, h.cached,
       h.memory_mb
  FROM cerebro.catalog_hops h;
COMMENT ON VIEW cerebro.hops IS
'One row a hop: a configuration over one partition. Seconds that the worker waited before, read, trained and wrote.';

CREATE VIEW cerebro.metrics AS
SELECT m.run_id, m.mst_key, m.epoch, m.dataset, m.loss, m.metric_names, m.metrics, m.elapsed
  FROM cerebro.catalog_metrics m;
COMMENT ON VIEW cerebro.metrics IS
'Loss and metrics of each configuration by epoch, on the training and the validation table.';

CREATE VIEW cerebro.leaderboard AS
WITH latest AS (
    SELECT m.*, max(m.epoch) OVER (PARTITION BY m.run_id, m.mst_key, m.dataset) AS last_epoch
      FROM cerebro.catalog_metrics m
), results AS (
    SELECT c.run_id, c.mst_key, c.model_id, c.compile_params, c.fit_params, c.goal, c.status,
           c.error, t.epoch, t.metric_names,
           v.loss AS validation_loss, v.metrics AS validation_metrics,
           t.loss AS training_loss, t.metrics AS training_metrics,
           CASE c.goal
               WHEN 'max' THEN -(coalesce(v.metrics, t.metrics))[1]
               WHEN 'min' THEN (coalesce(v.metrics, t.metrics))[1]
               ELSE coalesce(v.loss, t.loss)
           END AS badness
      FROM cerebro.catalog_configurations c
      LEFT JOIN latest t
        ON t.run_id = c.run_id AND t.mst_key = c.mst_key AND t.dataset = 'training'
       AND t.epoch = t.last_epoch
      LEFT JOIN latest v
        ON v.run_id = c.run_id AND v.mst_key = c.mst_key AND v.dataset = 'validation'
       AND v.epoch = v.last_epoch
)
SELECT run_id,
       rank() OVER (PARTITION BY run_id
                    ORDER BY status = 'failed', badness,
                             coalesce(validation_loss, training_loss)) AS rank,
       mst_key, model_id, compile_params, fit_params, status, epoch, metric_names,
       validation_metrics, validation_loss, training_metrics, training_loss, error
  FROM results;
COMMENT ON VIEW cerebro.leaderboard IS
'Configurations of each run, best first: by the first metric on the validation table (the training table where there is none), then by loss.';

CREATE VIEW cerebro.progress AS
WITH hops AS (
    SELECT run_id, count(*) AS done, sum(rows) AS rows, min(started) AS first, max(finished) AS last
      FROM cerebro.catalog_hops GROUP BY run_id
), configurations AS (
    SELECT run_id, count(*) AS all_of_them, count(nullif(status <> 'failed', false)) AS alive
      FROM cerebro.catalog_configurations GROUP BY run_id
), planned AS (
    SELECT r.run_id, coalesce(h.done, 0) AS done, h.rows, h.first, h.last,
           CASE WHEN r.status IN ('starting', 'running')
                THEN c.alive * r.num_partitions * r.num_iterations
                     + (SELECT count(*) FROM cerebro.catalog_hops f
                          JOIN cerebro.catalog_configurations k
                            ON k.run_id = f.run_id AND k.mst_key = f.mst_key
                         WHERE f.run_id = r.run_id AND k.status = 'failed')
                ELSE coalesce(h.done, 0)
           END AS planned,
           c.all_of_them, c.alive
      FROM cerebro.runs r
      LEFT JOIN hops h ON h.run_id = r.run_id
      LEFT JOIN configurations c ON c.run_id = r.run_id
), epochs AS (
    SELECT p.run_id, min(p.epoch) AS epoch
      FROM cerebro.catalog_plan p
      JOIN cerebro.catalog_configurations c
        ON c.run_id = p.run_id AND c.mst_key = p.mst_key AND c.status <> 'failed'
     WHERE NOT EXISTS (SELECT 1 FROM cerebro.catalog_hops h
                        WHERE h.run_id = p.run_id AND h.mst_key = p.mst_key
                          AND h.epoch = p.epoch AND h.position = p.position)
     GROUP BY p.run_id
)
SELECT r.run_id, r.name, r.status,
       coalesce(e.epoch, CASE WHEN p.done > 0 THEN r.num_iterations ELSE 0 END) AS epoch,
       r.num_iterations AS epochs, p.alive AS configurations, p.all_of_them - p.alive AS failed,
       p.done AS hops_done, p.planned AS hops_planned,
       round((p.rows / nullif(extract(epoch FROM p.last - p.first), 0))::numeric) AS rows_per_second,
       CASE WHEN r.status = 'running' AND p.done > 0
            THEN p.last + (p.last - p.first) * ((p.planned - p.done) / p.done::double precision)
            ELSE r.finished
       END AS estimated_end,
       b.mst_key AS best_mst_key,
       coalesce(b.validation_metrics[1], b.training_metrics[1],
                b.validation_loss, b.training_loss) AS best_so_far,
       r.created, r.started, r.finished
  FROM cerebro.runs r
  JOIN planned p ON p.run_id = r.run_id
  LEFT JOIN epochs e ON e.run_id = r.run_id
  LEFT JOIN (SELECT DISTINCT ON (run_id) * FROM cerebro.leaderboard
              WHERE epoch IS NOT NULL ORDER BY run_id, rank, mst_key) b ON b.run_id = r.run_id;
COMMENT ON VIEW cerebro.progress IS
'Where each run stands: epoch, hops, rows a second, estimated end, best so far.';

GRANT SELECT ON cerebro.runs, cerebro.hops, cerebro.metrics, cerebro.leaderboard, cerebro.progress TO cerebro_user;
