from cerebro_db.server import fitting

return fitting.cancel(plpy, GD, run_id, mst_key)
