from cerebro_db.server import fitting

return fitting.fit(
    plpy,
    GD,
    dict(
        source_table=source_table,
        model_output_table=model_output_table,
        model_selection_table=model_selection_table,
        num_iterations=num_iterations,
        use_gpus=use_gpus,
        validation_table=validation_table,
        metrics_compute_frequency=metrics_compute_frequency,
        warm_start=warm_start,
        name=name,
        description=description,
        use_caching=use_caching,
        seed=seed,
        num_workers=num_workers,
        durability=durability,
        max_seconds=max_seconds,
        schedule=schedule,
        replace=replace,
    ),
)
