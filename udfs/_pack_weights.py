return relay.trainer("packing_rows.weights", targets, weights, rows)
