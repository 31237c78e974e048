-- The next number of a sequence needs the right to update it, and who has that may set it back as well: so a function of
-- the owner takes it.
CREATE OR REPLACE FUNCTION cerebro._next_number(what text)
    RETURNS bigint LANGUAGE plpgsql SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp AS $$
    BEGIN
        RETURN CASE $1 WHEN 'run' THEN nextval('cerebro.catalog_runs_run_id_seq')
                       WHEN 'request' THEN nextval('cerebro.catalog_requests_request_id_seq')
                       WHEN 'model' THEN nextval('cerebro.catalog_models_model_id_seq')
                       WHEN 'version' THEN nextval('cerebro.catalog_model_versions_version_id_seq')
                       WHEN 'change' THEN nextval('cerebro.catalog_model_aliases_change_id_seq')
                       WHEN 'job' THEN nextval('cerebro.catalog_jobs_job_id_seq')
                       WHEN 'event' THEN nextval('cerebro.catalog_job_events_event_id_seq')
                       WHEN 'worker' THEN nextval('cerebro.catalog_direct_workers_worker_id_seq')
                       WHEN 'order' THEN nextval('cerebro.catalog_direct_orders_order_id_seq')
                       WHEN 'drift' THEN nextval('cerebro.catalog_drift_drift_id_seq')
               END;
    END
    $$;
ALTER FUNCTION cerebro._next_number(text) OWNER TO cerebro_owner;
COMMENT ON FUNCTION cerebro._next_number(text) IS
    'Internal: the number of the next run, request, registered model, version, change of an alias, job, event, direct worker, order or drift.';
REVOKE ALL ON FUNCTION cerebro._next_number(text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION cerebro._next_number(text) TO cerebro_user;
REVOKE UPDATE ON SEQUENCE cerebro.catalog_runs_run_id_seq, cerebro.catalog_requests_request_id_seq
    FROM cerebro_user;
ALTER TABLE cerebro.catalog_runs
    ALTER COLUMN run_id SET DEFAULT cerebro._next_number('run');
ALTER TABLE cerebro.catalog_requests
    ALTER COLUMN request_id SET DEFAULT cerebro._next_number('request');
ALTER TABLE cerebro.catalog_models
    ALTER COLUMN model_id SET DEFAULT cerebro._next_number('model');
ALTER TABLE cerebro.catalog_model_versions
    ALTER COLUMN version_id SET DEFAULT cerebro._next_number('version');
ALTER TABLE cerebro.catalog_model_aliases
    ALTER COLUMN change_id SET DEFAULT cerebro._next_number('change');
ALTER TABLE cerebro.catalog_jobs
    ALTER COLUMN job_id SET DEFAULT cerebro._next_number('job');
ALTER TABLE cerebro.catalog_job_events
    ALTER COLUMN event_id SET DEFAULT cerebro._next_number('event');
ALTER TABLE cerebro.catalog_direct_workers
    ALTER COLUMN worker_id SET DEFAULT cerebro._next_number('worker');
ALTER TABLE cerebro.catalog_direct_orders
    ALTER COLUMN order_id SET DEFAULT cerebro._next_number('order');
ALTER TABLE cerebro.catalog_drift
    ALTER COLUMN drift_id SET DEFAULT cerebro._next_number('drift');
