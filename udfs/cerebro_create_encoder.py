return relay.driver(
    "packing.create_encoder",
    source_table=source_table,
    training_table=training_table,
    function_name=function_name,
    replace=replace,
)
