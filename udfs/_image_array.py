return relay.trainer("packing_rows.array", data, shape, format, max_pixels)
