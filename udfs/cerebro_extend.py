return relay.driver("searching.extend", run_id, automl_params, max_seconds, max_epochs, max_configs)
