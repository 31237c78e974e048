from cerebro_db.server import training

return training.release(plpy, GD)
