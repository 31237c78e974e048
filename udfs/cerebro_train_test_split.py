return relay.driver(
    "packing.train_test_split",
    source_table=source_table,
    output_table=output_table,
    train_proportion=train_proportion,
    test_proportion=test_proportion,
    grouping_cols=grouping_cols,
    target_cols=target_cols,
    with_replacement=with_replacement,
    separate_output_tables=separate_output_tables,
    seed=seed,
    replace=replace,
)
