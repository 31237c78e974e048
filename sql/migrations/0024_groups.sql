-- How many hops of a round a run has chosen to make together, and why where that is new.

ALTER TABLE cerebro.catalog_plan ADD COLUMN group_size integer NOT NULL DEFAULT 1 CHECK (group_size BETWEEN 1 AND 100000);
ALTER TABLE cerebro.catalog_plan ADD COLUMN reason text
    CONSTRAINT bounded_reason CHECK (length(reason) <= 4000 AND reason !~ '[\x01-\x08\x0b\x0c\x0e-\x1f\x7f]');
