from cerebro_db.server import packing

return packing.pack_images(
    plpy,
    GD,
    source_table,
    output_table,
    dependent_varname,
    independent_varname,
    image_shape,
    image_format,
    buffer_size,
    normalizing_const,
    num_classes,
    num_partitions,
    seed,
    sample_weight,
    distribution_rules,
    replace,
    on_error,
)
