return relay.driver(
    "results.evaluate", model_table, test_table, output_table, use_gpus, mst_key, replace
)
