return relay.driver("searching.narrow", run_id, model_id_list, compile_params_grid, fit_params_grid)
