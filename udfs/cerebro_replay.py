return relay.driver("searching.replay", run_id, model_output_table, name, description, num_workers)
