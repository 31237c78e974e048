from cerebro_db.server import fitting

return fitting.fit_one(
    plpy,
    GD,
    dict(
        model_arch_table=model_arch_table,
        model_id=model_id,
        compile_params=compile_params,
        fit_params=fit_params,
        object_table=object_table,
    ),
    dict(
        source_table=source_table,
        model_output_table=model_output_table,
        model_selection_table=None,
        num_iterations=num_iterations,
        use_gpus=use_gpus,
        validation_table=validation_table,
        metrics_compute_frequency=metrics_compute_frequency,
        warm_start=warm_start,
        name=name,
        description=description,
        use_caching=use_caching,
        seed=seed,
        durability=durability,
        max_seconds=max_seconds,
        replace=replace,
    ),
)
