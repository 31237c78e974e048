return relay.driver(
    "fitting.resume",
    run_id,
    max_seconds,
    num_workers,
    any_version,
    model_output_table,
    wait,
    priority,
)
