-- What cross-validation has found: each configuration once, over the trainings of its folds.

{%- set is_valid = "(r.spec -> 'folds' ->> 'count') ~ '^[0-9]{1,4}$' AND jsonb_typeof(r.spec -> 'folds' -> 'mst_keys') = 'array'" %}
CREATE VIEW cerebro.folds WITH (security_barrier) AS
SELECT m.run_id, rank() OVER (PARTITION BY m.run_id, m.metric ORDER BY avg(m.badness)) AS rank, m.mst_key, m.metric,
       count(*) AS folds, avg(m.value) AS mean, stddev_samp(m.value) AS deviation, min(m.value) AS least,
       max(m.value) AS most, avg(m.seen) AS training_mean
  FROM (SELECT l.run_id, t.mst_key, t.badness_sign * coalesce(l.validation_metrics[1], l.validation_loss) AS badness,
               unnest('loss'::text || l.metric_names) AS metric,
               unnest(l.validation_loss || l.validation_metrics) AS value,
               unnest(l.training_loss || l.training_metrics) AS seen
          FROM cerebro.leaderboard l
          JOIN (SELECT c.run_id, c.mst_key AS key, CASE c.goal WHEN 'max' THEN -1 ELSE 1 END AS badness_sign,
                       -- Whoever owns a run may have written anything.
                       CASE WHEN k.text ~ '^-?[0-9]{1,9}$' THEN k.text::integer END AS mst_key
                  FROM cerebro._configurations c
                  JOIN (SELECT r.run_id, CASE WHEN {{ is_valid }} THEN r.spec -> 'folds' -> 'mst_keys' END AS keys,
                               CASE WHEN {{ is_valid }}
                                    THEN greatest(1, (r.spec -> 'folds' ->> 'count')::integer) END AS count
                          FROM cerebro._runs r WHERE (r.spec -> 'folds') IS NOT NULL) f ON f.run_id = c.run_id,
                       LATERAL (SELECT f.keys ->> ((c.mst_key - 1) / f.count) AS text) k) t
            ON t.run_id = l.run_id AND t.key = l.mst_key
         WHERE l.status NOT IN ('failed', 'cancelled') AND l.validation_loss IS NOT NULL AND t.mst_key IS NOT NULL
           AND coalesce(array_ndims(l.metric_names), 1) = 1 AND coalesce(array_ndims(l.validation_metrics), 1) = 1
           AND coalesce(array_ndims(l.training_metrics), 1) = 1) m
 WHERE m.metric IS NOT NULL
 GROUP BY m.run_id, m.mst_key, m.metric;
COMMENT ON VIEW cerebro.folds IS
'Cross-validation: loss and metrics of each configuration on the rows that were held out, with their mean and deviation over the folds.';

GRANT SELECT ON cerebro.folds TO cerebro_user;
ALTER VIEW cerebro.folds OWNER TO cerebro_owner;
