return relay.driver("searching.best", run_id, n, model_selection_table, replace)
