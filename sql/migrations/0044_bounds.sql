-- What an owner writes into the settings of a run is read by every look at the catalog.
ALTER TABLE cerebro.catalog_runs ADD CONSTRAINT bounded_session CHECK (session !~ '[\x01-\x08\x0b\x0c\x0e-\x1f]');
