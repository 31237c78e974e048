from cerebro_db.server import splitting

return splitting.train_test_split(
    plpy,
    GD,
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
