-- What the strategy of a run was asked for, beside its name in schedule, and the rounds of its epochs.

ALTER TABLE cerebro.catalog_runs ADD COLUMN strategy_params text NOT NULL DEFAULT ''
    CONSTRAINT bounded_strategy_params CHECK (length(strategy_params) <= 10000 AND strategy_params !~ '[\x01-\x08\x0b\x0c\x0e-\x1f\x7f]');
ALTER TABLE cerebro.catalog_runs ADD COLUMN rounds integer NOT NULL DEFAULT 1 CHECK (rounds BETWEEN 1 AND 10000);
