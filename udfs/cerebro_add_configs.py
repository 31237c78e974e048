return relay.driver(
    "searching.add_configs",
    run_id,
    model_id_list,
    compile_params_list,
    fit_params_list,
    num_iterations,
)
