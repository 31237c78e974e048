-- Another session may end a search.

ALTER TABLE cerebro.catalog_requests DROP CONSTRAINT catalog_requests_action_check;
ALTER TABLE cerebro.catalog_requests ADD CONSTRAINT catalog_requests_action_check
    CHECK (action IN ('cancel', 'pause', 'add', 'clone', 'stop', 'narrow', 'extend', 'finish'));
