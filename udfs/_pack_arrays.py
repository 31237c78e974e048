from cerebro_db.server import packing_rows

return packing_rows.arrays(plpy, rows, keys, positions, shape, divisor)
