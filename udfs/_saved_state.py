from cerebro_db.server import training

return training.saved_state(plpy, GD, token)
