return relay.driver(
    "results.evaluate",
    model_table=model_table,
    test_table=test_table,
    output_table=output_table,
    use_gpus=use_gpus,
    mst_key=mst_key,
    replace=replace,
    dependent_varname=dependent_varname,
    independent_varname=independent_varname,
    on_error=on_error,
)
