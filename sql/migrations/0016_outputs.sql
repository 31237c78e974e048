-- Whether the output tables of an earlier run give way to those of a run when it ends.

ALTER TABLE cerebro.catalog_runs ADD COLUMN replaces boolean NOT NULL DEFAULT false;
