return relay.trainer("packing_rows.arrays", rows, keys, positions, shape, divisor, name, is_whole)
