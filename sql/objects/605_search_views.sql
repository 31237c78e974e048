-- What is seen of searches. Arrays are spread in lists of columns, which all servers do alike.

-- Nothing is computed ahead in WITH: a condition on run_id reaches all tables.

{%- set aims %}
       -- Whoever owns a run may have written anything.
       (SELECT p.run_id, p.place, p.objectives -> p.place ->> 'metric' AS metric,
               p.objectives -> p.place ->> 'dataset' AS dataset,
               (p.objectives -> p.place ->> 'maximise') = 'true' AS maximise
          FROM (SELECT s.run_id, s.objectives, generate_series(0, jsonb_array_length(s.objectives) - 1) AS place
                  FROM (SELECT r.run_id, CASE WHEN jsonb_typeof(r.spec -> 'search' -> 'objectives') = 'array'
                                              THEN r.spec -> 'search' -> 'objectives' ELSE '[]' END AS objectives
                          FROM cerebro._runs r WHERE (r.spec -> 'search') IS NOT NULL) s) p)
{%- endset %}
{%- set measures %}
       (SELECT l.run_id, l.mst_key, l.dataset, l.epoch, unnest('loss'::text || l.metric_names) AS metric,
               unnest(l.loss || l.metrics) AS value
          FROM (SELECT DISTINCT ON (m.run_id, m.mst_key, m.dataset) m.* FROM cerebro._metrics m
                 WHERE coalesce(array_ndims(m.metric_names), 1) = 1 AND coalesce(array_ndims(m.metrics), 1) = 1
                 ORDER BY m.run_id, m.mst_key, m.dataset, m.epoch DESC) l)
{%- endset %}
{%- set is_place = "((d.detail ->> 'bracket') ~ '^[0-9]{1,9}$' AND (d.detail ->> 'rung') ~ '^[0-9]{1,9}$')" %}
CREATE VIEW cerebro.trials WITH (security_barrier) AS
SELECT c.run_id, c.mst_key,
       rank() OVER (PARTITION BY c.run_id
                    ORDER BY c.status IN ('failed', 'cancelled'), v.badness, v.objectives IS NULL) AS rank,
       c.model_id, c.compile_params, c.fit_params, b.parameters,
       t.status,
       p.bracket, p.rung, c.budget, v.epoch, v.objectives[1] AS objective, v.objectives,
       n.action, n.reason, nullif(n.who, '') AS decided_by, n.decided, c.error
  FROM cerebro._configurations c
  JOIN cerebro._runs s ON s.run_id = c.run_id AND (s.spec -> 'search') IS NOT NULL
  JOIN cerebro._statuses t ON t.run_id = c.run_id AND t.mst_key = c.mst_key
  LEFT JOIN (SELECT m.run_id, m.mst_key, max(m.epoch) AS epoch, array_agg(m.value ORDER BY a.place) AS objectives,
                    -- Smaller is better; what is not a number comes last.
                    min(CASE WHEN a.place > 0 OR m.value = 'NaN' THEN NULL WHEN a.maximise THEN -m.value
                             ELSE m.value END) AS badness
               FROM {{ measures | trim }} m
               JOIN {{ aims | trim }} a
                 ON a.run_id = m.run_id AND a.dataset = m.dataset AND a.metric = m.metric
              GROUP BY m.run_id, m.mst_key) v ON v.run_id = c.run_id AND v.mst_key = c.mst_key
  -- Both of the last decision that has them: a trial may go on in another bracket.
  LEFT JOIN (SELECT DISTINCT ON (d.run_id, d.mst_key) d.run_id, d.mst_key,
                    CASE WHEN {{ is_place }} THEN (d.detail ->> 'bracket')::integer END AS bracket,
                    CASE WHEN {{ is_place }} THEN (d.detail ->> 'rung')::integer END AS rung
               FROM cerebro._decisions d WHERE {{ is_place }}
              ORDER BY d.run_id, d.mst_key, d.number DESC) p
    ON p.run_id = c.run_id AND p.mst_key = c.mst_key
  LEFT JOIN (SELECT DISTINCT ON (d.run_id, d.mst_key) d.run_id, d.mst_key, d.detail -> 'parameters' AS parameters
               FROM cerebro._decisions d WHERE d.action IN ('add', 'clone')
              ORDER BY d.run_id, d.mst_key, d.number) b ON b.run_id = c.run_id AND b.mst_key = c.mst_key
  LEFT JOIN (SELECT DISTINCT ON (d.run_id, d.mst_key) d.* FROM cerebro._decisions d
              ORDER BY d.run_id, d.mst_key, d.number DESC) n ON n.run_id = c.run_id AND n.mst_key = c.mst_key;
COMMENT ON VIEW cerebro.trials IS
'Configurations of each search: their parameters, how far they are, what they have reached, and what was last decided about them, and why.';

CREATE VIEW cerebro.searches WITH (security_barrier) AS
SELECT r.run_id, r.name, r.status, s.search ->> 'method' AS method, (s.search -> 'replays') <> '[]' AS is_replay, s.search -> 'params' AS params,
       s.search -> 'space' AS space, s.search -> 'objectives' AS objectives, s.search -> 'budget' AS budget,
       t.trials, t.finished AS finished_trials, t.stopped, t.failed, t.epochs,
       b.mst_key AS best_mst_key, b.objective AS best_objective
  FROM cerebro.runs r
  JOIN (SELECT i.run_id, i.spec -> 'search' AS search FROM cerebro._runs i) s ON s.run_id = r.run_id AND s.search IS NOT NULL
  LEFT JOIN (SELECT c.run_id, count(*) AS trials,
                    count(nullif(c.status = 'finished', false)) AS finished,
                    count(nullif(c.status = 'stopped', false)) AS stopped,
                    count(nullif(c.status IN ('failed', 'cancelled'), false)) AS failed,
                    sum(c.epoch)::bigint AS epochs
               FROM cerebro.trials c GROUP BY c.run_id) t ON t.run_id = r.run_id
  LEFT JOIN (SELECT DISTINCT ON (c.run_id) c.run_id, c.mst_key, c.objective FROM cerebro.trials c
              WHERE c.status NOT IN ('failed', 'cancelled')
                -- What is not a number is compared with nothing, as cerebro_db/models/best.py has it.
                AND 'NaN' <> ALL (c.objectives) AND 'Infinity' <> ALL (c.objectives) AND '-Infinity' <> ALL (c.objectives)
              ORDER BY c.run_id, c.rank, c.mst_key) b ON b.run_id = r.run_id;
COMMENT ON VIEW cerebro.searches IS
'Searches: their method and space, what they look for, and the best that they have found so far.';

GRANT SELECT ON cerebro.trials, cerebro.searches TO cerebro_user;
ALTER VIEW cerebro.trials OWNER TO cerebro_owner;
ALTER VIEW cerebro.searches OWNER TO cerebro_owner;
