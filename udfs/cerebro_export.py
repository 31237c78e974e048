return relay.driver("registry.export", model_table, mst_key, format)
