-- How the hops of a run are made: by workers without barriers, or in steps on all segments.

ALTER TABLE cerebro.catalog_runs ADD COLUMN schedule text NOT NULL DEFAULT 'hopper';
