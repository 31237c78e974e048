return relay.driver(
    "splitting.train_test_split",
    source_table,
    output_table,
    train_proportion,
    test_proportion,
    grouping_cols,
    target_cols,
    with_replacement,
    separate_output_tables,
    seed,
    replace,
)
