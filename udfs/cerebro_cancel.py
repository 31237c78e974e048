return relay.driver("fitting.cancel", run_id, mst_key)
