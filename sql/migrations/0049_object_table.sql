-- The table from which MADlib's names of functions in the parameters of a run are.
ALTER TABLE cerebro.catalog_runs ADD COLUMN object_table text
    CONSTRAINT bounded_object_table CHECK (length(object_table) <= 1000 AND object_table !~ '[\x01-\x08\x0b\x0c\x0e-\x1f\x7f]');
