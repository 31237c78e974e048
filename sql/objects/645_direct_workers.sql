-- Workers that join runs from other machines. See docs/workers.md. The views are dropped in 600_views.sql.

-- Only with the rights of a run's owner: administrators see such rows, and neither join nor order.
{%- for table in ['workers', 'orders', 'answers'] %}
CREATE VIEW cerebro._direct_{{ table }} WITH (security_barrier) AS
SELECT t.* FROM cerebro.catalog_direct_{{ table }} t
 WHERE EXISTS (SELECT 1 FROM cerebro._runs r WHERE r.run_id = t.run_id AND pg_has_role(r.owner, 'USAGE'))
  WITH CASCADED CHECK OPTION;
COMMENT ON VIEW cerebro._direct_{{ table }} IS 'Internal: direct workers, their orders and answers, of the runs of the caller.';
DROP TRIGGER IF EXISTS check_run ON cerebro.catalog_direct_{{ table }};
CREATE TRIGGER check_run BEFORE INSERT ON cerebro.catalog_direct_{{ table }}
    FOR EACH ROW EXECUTE PROCEDURE cerebro._check_run('owner');
{%- endfor %}

-- Who joined from where, and when, is set by the server and stays so.
GRANT SELECT, INSERT (run_id, lock_key, host), UPDATE (number, told, facts, departed, reason), DELETE
    ON cerebro._direct_workers TO cerebro_user;
GRANT SELECT, INSERT (run_id, worker_id, hop, fence), DELETE ON cerebro._direct_orders TO cerebro_user;
GRANT SELECT, INSERT (run_id, order_id, answer), DELETE ON cerebro._direct_answers TO cerebro_user;

-- The fence: an order is answered, or taken back, under its lock, which is given back when either can be seen. What
-- is looked for afterwards is a statement of its own, which sees what was committed before.
CREATE OR REPLACE FUNCTION cerebro._answer_order(run_id bigint, order_id bigint, fence bigint, answer text)
RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM pg_advisory_xact_lock($3);
    IF NOT EXISTS (SELECT 1 FROM cerebro._direct_orders o
                    WHERE o.run_id = $1 AND o.order_id = $2 AND o.fence = $3) THEN
        RAISE EXCEPTION USING ERRCODE = 'YC007', MESSAGE = format('order: got %s, which was taken back', $2);
    END IF;
    INSERT INTO cerebro._direct_answers (run_id, order_id, answer) VALUES ($1, $2, $4);
END
$$;
COMMENT ON FUNCTION cerebro._answer_order(bigint, bigint, bigint, text) IS
'Internal: answers an order, and keeps others from taking it back until the transaction ends; an error where it was taken back.';

CREATE OR REPLACE FUNCTION cerebro._take_order_back(run_id bigint, order_id bigint, fence bigint)
RETURNS boolean LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM pg_advisory_xact_lock($3);
    IF EXISTS (SELECT 1 FROM cerebro._direct_answers a WHERE a.run_id = $1 AND a.order_id = $2) THEN
        RETURN false;
    END IF;
    DELETE FROM cerebro._direct_orders o WHERE o.run_id = $1 AND o.order_id = $2;
    RETURN true;
END
$$;
COMMENT ON FUNCTION cerebro._take_order_back(bigint, bigint, bigint) IS
'Internal: takes an order back, so that nothing can answer it; false where it has an answer. Waits for a transaction that answers it.';

CREATE VIEW cerebro.direct_workers WITH (security_barrier) AS
SELECT w.run_id, w.number AS worker, w.pid, w.host, w.address, w.login,
       CASE WHEN w.departed IS NOT NULL THEN 'left'
            WHEN NOT w.lock_key = ANY ((SELECT cerebro._held_locks())::bigint[]) THEN 'lost'
            WHEN w.facts IS NULL THEN 'joining'
            WHEN EXISTS (SELECT 1 FROM cerebro.catalog_direct_orders o
                           LEFT JOIN cerebro.catalog_direct_answers a ON a.run_id = o.run_id AND a.order_id = o.order_id
                          WHERE o.worker_id = w.worker_id AND a.order_id IS NULL) THEN 'training'
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
