return relay.driver("searching.stop_config", run_id, mst_key)
