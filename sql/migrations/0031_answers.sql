-- Answers of direct workers are rows of their own. Where tables lie on segments, an UPDATE or DELETE locks the whole table
-- of orders: it must be short, and no part of the transaction that brings a state.

DROP VIEW IF EXISTS cerebro.direct_workers, cerebro._direct_orders;
DELETE FROM cerebro.catalog_direct_orders;
ALTER TABLE cerebro.catalog_direct_orders DROP COLUMN answer;
-- Key of the advisory lock under which an order is answered, or taken back.
ALTER TABLE cerebro.catalog_direct_orders ADD COLUMN fence bigint NOT NULL;

CREATE TABLE cerebro.catalog_direct_answers (
    run_id   bigint NOT NULL,
    order_id bigint NOT NULL,
    answer   text NOT NULL CHECK (length(answer) <= 1048576),
    PRIMARY KEY (run_id, order_id)
);
ALTER TABLE cerebro.catalog_direct_answers OWNER TO cerebro_owner;

-- By the clock of the server that hops are timed by, not by that of a segment.
ALTER TABLE cerebro.catalog_direct_workers ALTER COLUMN joined SET DEFAULT now();
