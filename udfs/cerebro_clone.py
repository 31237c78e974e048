return relay.driver("searching.clone", run_id, mst_key, changes, num_iterations)
