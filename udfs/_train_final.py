from cerebro_db.server import training

return training.train_final(plpy, GD, token)
