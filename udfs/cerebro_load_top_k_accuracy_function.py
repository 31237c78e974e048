return relay.driver("models.load_top_k_accuracy_function", object_table, k)
