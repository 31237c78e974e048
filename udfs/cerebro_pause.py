from cerebro_db.server import fitting

return fitting.pause(plpy, GD, run_id)
