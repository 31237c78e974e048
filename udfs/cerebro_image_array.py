return relay.trainer("packing_rows.values", image, image_shape, image_format, normalizing_const)
