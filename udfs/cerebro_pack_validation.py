from cerebro_db.server import packing

return packing.pack_validation(
    plpy,
    GD,
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
