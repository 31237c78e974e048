return relay.driver("jobs.promote", run_id, model, mst_key, validation_table)
