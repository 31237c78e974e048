return relay.driver(
    "packing.pack_validation",
    source_table,
    output_table,
    dependent_varname,
    independent_varname,
    training_table,
    buffer_size,
    distribution_rules,
    replace,
    on_error,
)
