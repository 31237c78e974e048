return relay.trainer("packing_rows.labels", ids, keys, positions)
