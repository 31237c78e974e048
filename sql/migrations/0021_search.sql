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
    CHECK (action IN ('add', 'clone', 'stop', 'promote', 'finish', 'narrow', 'extend'));
-- Results that a decision is based on, beside those of earlier ones: pairs of mst_key and epoch.
ALTER TABLE cerebro.catalog_decisions ADD COLUMN heard jsonb NOT NULL DEFAULT '[]'
    CHECK (length(heard::text) <= 1048576);
-- What concerns the search as a whole has no epochs; who is stopped before their first epoch has done none.
ALTER TABLE cerebro.catalog_decisions DROP CONSTRAINT catalog_decisions_epochs_check;
ALTER TABLE cerebro.catalog_decisions ADD CONSTRAINT catalog_decisions_epochs_check CHECK (epochs >= 0);

-- What is asked of a search, and what its driver answers.
ALTER TABLE cerebro.catalog_requests ADD COLUMN detail jsonb NOT NULL DEFAULT '{}'
    CHECK (length(detail::text) <= 1048576);
ALTER TABLE cerebro.catalog_requests ADD COLUMN answer jsonb CHECK (length(answer::text) <= 1048576);
ALTER TABLE cerebro.catalog_requests DROP CONSTRAINT catalog_requests_action_check;
ALTER TABLE cerebro.catalog_requests ADD CONSTRAINT catalog_requests_action_check
    CHECK (action IN ('cancel', 'pause', 'add', 'clone', 'stop', 'narrow'));
