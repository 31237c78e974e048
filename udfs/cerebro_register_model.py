return relay.driver("registry.register", run_id, mst_key, name, description, tags)
