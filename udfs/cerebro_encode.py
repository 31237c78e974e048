return relay.driver(
    "packing.encode",
    source_table=source_table,
    training_table=training_table,
    output_table=output_table,
    id_col=id_col,
    replace=replace,
)
