-- A driver looks for the requests of its run several times a second, however many there are of others.
CREATE INDEX catalog_requests_run_id ON cerebro.catalog_requests (run_id);
