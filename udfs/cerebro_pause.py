return relay.driver("fitting.pause", run_id)
