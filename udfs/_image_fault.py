return relay.trainer("packing_rows.fault", data, shape, format, max_pixels)
