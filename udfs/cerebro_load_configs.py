return relay.driver(
    "models.load_configs",
    model_arch_table=model_arch_table,
    model_selection_table=model_selection_table,
    model_id_list=model_id_list,
    compile_params_list=compile_params_list,
    fit_params_list=fit_params_list,
    object_table=object_table,
    replace=replace,
)
