from cerebro_db.server import packing_rows

return packing_rows.weights(plpy, targets, weights, rows)
