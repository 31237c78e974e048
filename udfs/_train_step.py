from cerebro_db.server import training

return training.train_step(
    plpy, GD, token, kind, task, state, weights, subepoch, buffer_id, x, x_shape, y, y_shape
)
