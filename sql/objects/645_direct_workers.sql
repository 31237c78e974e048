-- Workers that join runs from other machines. See docs/workers.md. The views are dropped in 600_views.sql.

-- Only with the rights of a run's owner: administrators neither join nor order.
{%- for table in ['workers', 'orders', 'answers'] %}
CREATE VIEW cerebro._direct_{{ table }} WITH (security_barrier) AS
SELECT t.* FROM cerebro.catalog_direct_{{ table }} t
 WHERE EXISTS (SELECT 1 FROM cerebro._runs r WHERE r.run_id = t.run_id AND pg_has_role(r.owner, 'USAGE'));
COMMENT ON VIEW cerebro._direct_{{ table }} IS 'Internal: direct workers, their orders and answers, of the runs of the caller.';
{%- endfor %}
GRANT SELECT ON cerebro._direct_workers, cerebro._direct_orders, cerebro._direct_answers TO cerebro_user;

CREATE VIEW cerebro.direct_workers WITH (security_barrier) AS
SELECT w.run_id, w.number AS worker, w.pid, w.host, w.address, w.login,
       CASE WHEN w.departed IS NOT NULL THEN 'left'
            WHEN NOT w.lock_key = ANY ((SELECT cerebro._held_locks())::bigint[]) THEN 'lost'
            WHEN w.facts IS NULL THEN 'joining'
            WHEN EXISTS (SELECT 1 FROM cerebro.catalog_direct_orders o
                           LEFT JOIN cerebro.catalog_direct_answers a ON a.run_id = o.run_id AND a.order_id = o.order_id
                          WHERE o.run_id = w.run_id AND o.worker_id = w.worker_id AND a.order_id IS NULL) THEN 'training'
            ELSE 'waiting'
       END AS status,
       (SELECT count(*) FROM cerebro.catalog_hops h
         WHERE h.run_id = w.run_id AND h.pid = w.pid AND h.started >= w.joined
           AND h.started <= coalesce(w.departed, h.started)) AS hops,
       w.joined, w.departed, w.reason, w.facts
  FROM cerebro.catalog_direct_workers w
 WHERE EXISTS (SELECT 1 FROM cerebro._runs r WHERE r.run_id = w.run_id);
COMMENT ON VIEW cerebro.direct_workers IS
'Workers that have joined a run by "cerebro worker": from where, as whom, whether they are there, how many hops they have made, and what they computed with.';
GRANT SELECT ON cerebro.direct_workers TO cerebro_user;
{%- for view in ['_direct_workers', '_direct_orders', '_direct_answers', 'direct_workers'] %}
ALTER VIEW cerebro.{{ view }} OWNER TO cerebro_owner;
{%- endfor %}
