return relay.driver(
    "results.confusion_matrix", model_table, test_table, output_table, use_gpus, mst_key, replace
)
