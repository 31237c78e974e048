-- A run of one model has no table of configurations.

ALTER TABLE cerebro.catalog_runs ALTER COLUMN model_selection_table DROP NOT NULL;
