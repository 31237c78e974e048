return relay.driver(
    "packing.pack_validation",
    source_table=source_table,
    output_table=output_table,
    dependent_varname=dependent_varname,
    independent_varname=independent_varname,
    training_table=training_table,
    buffer_size=buffer_size,
    distribution_rules=distribution_rules,
    replace=replace,
    on_error=on_error,
)
