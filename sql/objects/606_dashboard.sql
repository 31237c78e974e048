-- A row a configuration for psql's \watch: bar, curve and time left as text.

-- Nothing is computed ahead in WITH, and windows are of one run: a condition on run_id reaches all tables.
-- Whoever owns a run may have written anything: numbers near the limits of their type are drawn as what is none.
{%- set planned = "(h.epochs * h.an_epoch)" %}
{%- set is_over = "(s.status NOT IN ('waiting', 'training'))" %}
{#- Without a column in it the server would compute a character ahead, which not every encoding has. #}
{%- set full = "CASE WHEN getdatabaseencoding() = 'UTF8' THEN chr(9608 + r.num_partitions * 0) ELSE '#' END" %}
{%- set level = "CASE WHEN p.high - p.low < 1e-290 THEN 3 WHEN p.value - p.low < (p.high - p.low) * 1e-3 THEN 0
                      ELSE round(7 * ((p.value - p.low) / (p.high - p.low))::numeric)::integer END" %}
CREATE VIEW cerebro.dashboard WITH (security_barrier) AS
SELECT c.run_id,
       rank() OVER (PARTITION BY c.run_id
                    ORDER BY c.status IN ('failed', 'cancelled'),
                             CASE c.goal WHEN 'max' THEN -v.result ELSE v.result END, v.loss) AS rank,
       c.mst_key,
       s.status,
       floor(h.done / h.an_epoch)::integer AS epoch,
       h.epochs,
       repeat({{ full }}, least(20, floor(20 * h.done / {{ planned }}))::integer)
       || repeat('.', 20 - least(20, floor(20 * h.done / {{ planned }}))::integer) AS progress,
       CASE WHEN NOT {{ is_over }} AND h.done > 0
            THEN to_char(least(999999, a.seconds * greatest(0, {{ planned }} - h.done)::double precision / h.done)
                         * interval '1 second', 'HH24:MI:SS') END AS time_left,
       v.curve,
       CASE v.dataset WHEN 'validation' THEN 'val_' ELSE '' END
       || CASE c.goal WHEN 'loss' THEN 'loss' ELSE v.metric END AS measure,
       v.result,
       'model ' || c.model_id || coalesce(', ' || substring(c.compile_params FROM 'optimizer=''([^'']*)'''), '')
       || coalesce(', ' || nullif(c.fit_params, ''), '') AS configuration
  FROM cerebro._configurations c
  JOIN cerebro.runs r ON r.run_id = c.run_id
  JOIN cerebro._pace a ON a.run_id = c.run_id
  JOIN cerebro._statuses s ON s.run_id = c.run_id AND s.mst_key = c.mst_key
  JOIN cerebro._hops_of h ON h.run_id = c.run_id AND h.mst_key = c.mst_key
  LEFT JOIN (SELECT p.run_id, p.mst_key, max(p.dataset) AS dataset,
                    max(CASE WHEN p.epoch = p.counts THEN p.metric END) AS metric,
                    max(CASE WHEN p.epoch = p.counts THEN p.value END) AS result,
                    max(CASE WHEN p.epoch = p.counts THEN p.loss END) AS loss,
                    string_agg(CASE WHEN p.back > 20 THEN NULL
                                    WHEN p.drawn IS NULL THEN 'x'
                                    WHEN getdatabaseencoding() = 'UTF8' THEN chr(9601 + {{ level }})
                                    ELSE substr('_.-:=+*#', 1 + {{ level }}, 1) END, '' ORDER BY p.epoch) AS curve
               FROM (SELECT q.*, min(q.drawn) OVER (PARTITION BY q.run_id, q.mst_key) AS low,
                            max(q.drawn) OVER (PARTITION BY q.run_id, q.mst_key) AS high,
                            -- Of a configuration that has ended, the epoch whose state is the model.
                            coalesce(q.model_epoch, max(q.epoch) OVER (PARTITION BY q.run_id, q.mst_key)) AS counts,
                            row_number() OVER (PARTITION BY q.run_id, q.mst_key ORDER BY q.epoch DESC) AS back
                       FROM (SELECT m.*, CASE WHEN abs(m.value) < 1e290 THEN m.value END AS drawn
                               FROM (SELECT m.run_id, m.mst_key, m.epoch, m.dataset, m.loss, m.metric_names[1] AS metric,
                                            CASE k.goal WHEN 'loss' THEN m.loss ELSE m.metrics[1] END AS value, k.model_epoch,
                                            max(m.dataset) OVER (PARTITION BY m.run_id, m.mst_key) AS chosen
                                       FROM cerebro._metrics m
                                       JOIN cerebro._configurations k ON k.run_id = m.run_id AND k.mst_key = m.mst_key) m
                              WHERE m.dataset = m.chosen) q) p
              GROUP BY p.run_id, p.mst_key) v
    ON v.run_id = c.run_id AND v.mst_key = c.mst_key;
COMMENT ON VIEW cerebro.dashboard IS
'A row a configuration with bar, time left and curve as text, for \watch of psql: SELECT * FROM cerebro.dashboard WHERE run_id = 1 ORDER BY rank.';

GRANT SELECT ON cerebro.dashboard TO cerebro_user;
ALTER VIEW cerebro.dashboard OWNER TO cerebro_owner;
