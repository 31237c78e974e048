from cerebro_db.server import packing

return packing.pack_columns(
    plpy,
    GD,
    source_table,
    output_table,
    dependent_varname,
    independent_varname,
    buffer_size,
    numbers,
    categories,
    max_categories,
    encodings,
    excluded,
    num_classes,
    num_partitions,
    seed,
    sample_weight,
    distribution_rules,
    replace,
)
