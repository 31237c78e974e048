-- Nobody but the owner of the catalog can lock this table: whoever starts jobs does so, and lets it go before the function
-- that started them returns.
CREATE TABLE cerebro.catalog_queue (nothing boolean);
ALTER TABLE cerebro.catalog_queue OWNER TO cerebro_owner;
-- Whether a job has ended is known without its events. Where tables lie on segments it stays false, and events are read.
ALTER TABLE cerebro.catalog_jobs ADD COLUMN ended boolean NOT NULL DEFAULT false;
CREATE INDEX catalog_jobs_open ON cerebro.catalog_jobs (job_id) WHERE NOT ended;
-- Of whom jobs were started last.
CREATE INDEX catalog_job_events_started ON cerebro.catalog_job_events (event_id) WHERE action = 'started';
-- When a schedule starts next, as computed when it was made and at each start.
ALTER TABLE cerebro.catalog_schedules ADD COLUMN due timestamptz;
