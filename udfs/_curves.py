return relay.driver("results.curves", model_table, test_table, mst_key)
