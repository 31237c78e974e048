from cerebro_db.server import scoring

return scoring.measure_step(plpy, GD, token, kind, task, state, buffer_id, x, x_shape, y, y_shape)
