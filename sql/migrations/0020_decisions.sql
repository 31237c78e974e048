-- Configurations may come and go while a run goes on: what was decided, and the epochs that each is trained for.

-- NULL for those of an earlier version, which have the epochs of their run.
ALTER TABLE cerebro.catalog_configurations ADD COLUMN budget integer CHECK (budget >= 1);

CREATE TABLE cerebro.catalog_decisions (
    run_id       bigint NOT NULL,
    number       integer NOT NULL CHECK (number >= 1),
    mst_key      integer NOT NULL,
    action       text NOT NULL CHECK (action IN ('add', 'clone', 'stop', 'promote')),
    epochs       integer NOT NULL CHECK (epochs >= 1),
    source       integer,
    source_epoch integer CHECK (source_epoch >= 1),
    reason       text NOT NULL CHECK (length(reason) <= 1000 AND reason !~ '[\x01-\x08\x0b\x0c\x0e-\x1f\x7f]'),
    decided      timestamptz NOT NULL DEFAULT clock_timestamp()
                 CHECK (decided BETWEEN '2000-01-01' AND '3000-01-01'),
    CHECK ((action = 'clone') = (source IS NOT NULL AND source_epoch IS NOT NULL)),
    PRIMARY KEY (run_id, number, mst_key)
);
ALTER TABLE cerebro.catalog_decisions OWNER TO cerebro_owner;
