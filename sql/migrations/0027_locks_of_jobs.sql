-- A lock is one job's only: nobody can keep another one from being started. Where tables lie on segments, a second unique
-- key takes one whose copies are on all of them, as after each migration.
CREATE UNIQUE INDEX catalog_jobs_lock_key ON cerebro.catalog_jobs (lock_key);
