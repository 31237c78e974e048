-- A search is a run whose configurations are chosen while it goes on: what it was asked for, and of each decision who
-- made it and what there is to know about it. Values of jsonb were read once: no view stumbles over them.

ALTER TABLE cerebro.catalog_runs ADD COLUMN search jsonb;
ALTER TABLE cerebro.catalog_runs ADD CONSTRAINT bounded_search CHECK (length(search::text) <= 67108864);

ALTER TABLE cerebro.catalog_decisions ADD COLUMN who text NOT NULL DEFAULT ''
    CHECK (length(who) <= 1000 AND who !~ '[\x01-\x08\x0b\x0c\x0e-\x1f\x7f]');
ALTER TABLE cerebro.catalog_decisions ADD COLUMN detail jsonb NOT NULL DEFAULT '{}'
    CHECK (length(detail::text) <= 1048576);
ALTER TABLE cerebro.catalog_decisions DROP CONSTRAINT catalog_decisions_action_check;
ALTER TABLE cerebro.catalog_decisions ADD CONSTRAINT catalog_decisions_action_check
    CHECK (action IN ('add', 'clone', 'stop', 'promote', 'finish', 'narrow'));
