from cerebro_db.server import training

return training.prepare_process(plpy, GD, task)
