-- Calls that go on without their session, and those that a timer makes. What was asked for never changes; how it stands
-- is the last of its events. A job is running as long as somebody holds its lock.

CREATE TABLE cerebro.catalog_jobs (
    job_id     bigserial PRIMARY KEY,
    owner      oid NOT NULL DEFAULT cerebro._role(),
    calls      json NOT NULL CHECK (length(calls::text) <= 1048576 AND json_typeof(calls) = 'array'),
    session    json NOT NULL CHECK (length(session::text) <= 65536),
    priority   integer NOT NULL DEFAULT 0 CHECK (priority BETWEEN -100 AND 100),
    schedule   text CHECK (length(schedule) <= 100),
    on_success text CHECK (length(on_success) <= 1000),
    lock_key   bigint NOT NULL,
    submitted  timestamptz NOT NULL DEFAULT clock_timestamp()
               CHECK (submitted BETWEEN '2000-01-01' AND '3000-01-01')
);
CREATE TABLE cerebro.catalog_job_events (
    event_id bigserial PRIMARY KEY,
    job_id   bigint NOT NULL,
    action   text NOT NULL CHECK (action IN ('queued', 'started', 'run', 'done', 'told', 'cancel', 'finished', 'failed',
                                             'cancelled', 'paused', 'skipped')),
    run_id   bigint,
    message  text CHECK (length(message) <= 10000 AND message !~ '[\x01-\x08\x0b\x0c\x0e-\x1f\x7f]'),
    role     oid NOT NULL DEFAULT cerebro._role(),
    logged   timestamptz NOT NULL DEFAULT clock_timestamp()
             CHECK (logged BETWEEN '2000-01-01' AND '3000-01-01')
);
CREATE INDEX catalog_job_events_job_id ON cerebro.catalog_job_events (job_id, event_id);
-- Whether a job has ended is asked before each call: of all that there are.
CREATE INDEX catalog_job_events_ends ON cerebro.catalog_job_events (job_id)
    WHERE action IN ('finished', 'failed', 'cancelled', 'paused', 'skipped');
CREATE INDEX catalog_job_events_run_id ON cerebro.catalog_job_events (run_id) WHERE action = 'run';

CREATE TABLE cerebro.catalog_schedules (
    owner      oid NOT NULL DEFAULT cerebro._role(),
    name       text NOT NULL CHECK (length(name) <= 100 AND name !~ '[\x01-\x1f\x7f]'),
    cron       text NOT NULL CHECK (length(cron) <= 100),
    calls      json NOT NULL CHECK (length(calls::text) <= 1048576 AND json_typeof(calls) = 'array'),
    session    json NOT NULL CHECK (length(session::text) <= 65536),
    on_success text CHECK (length(on_success) <= 1000),
    priority   integer NOT NULL DEFAULT 0 CHECK (priority BETWEEN -100 AND 100),
    timer      text NOT NULL CHECK (timer IN ('pg_cron', 'crontab', 'daemon')),
    created    timestamptz NOT NULL DEFAULT clock_timestamp()
               CHECK (created BETWEEN '2000-01-01' AND '3000-01-01'),
    PRIMARY KEY (owner, name)
);

ALTER TABLE cerebro.catalog_jobs OWNER TO cerebro_owner;
ALTER TABLE cerebro.catalog_job_events OWNER TO cerebro_owner;
ALTER TABLE cerebro.catalog_schedules OWNER TO cerebro_owner;
GRANT USAGE ON SEQUENCE cerebro.catalog_jobs_job_id_seq, cerebro.catalog_job_events_event_id_seq TO cerebro_user;
