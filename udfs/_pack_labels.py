from cerebro_db.server import packing_rows

return packing_rows.labels(plpy, ids, keys, positions)
