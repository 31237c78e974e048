from cerebro_db.server import packing

return packing.pack(
    plpy,
    GD,
    source_table,
    output_table,
    dependent_varname,
    independent_varname,
    buffer_size,
    normalizing_const,
    num_classes,
    distribution_rules,
    num_partitions,
    seed,
    sample_weight,
    replace,
)
