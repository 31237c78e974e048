return relay.driver("fitting.drop_run", run_id)
