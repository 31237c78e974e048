from cerebro_db.server import results

return results.predict(
    plpy,
    GD,
    model_table,
    test_table,
    id_col,
    independent_varname,
    output_table,
    pred_type,
    use_gpus,
    mst_key,
    num_workers,
    ensemble,
    replace,
    on_error,
)
