return relay.driver(
    "selection.load_configs",
    model_arch_table,
    model_selection_table,
    model_id_list,
    compile_params_list,
    fit_params_list,
    object_table,
    replace,
)
