from cerebro_db.server import fitting

return fitting.drop_run(plpy, GD, run_id)
