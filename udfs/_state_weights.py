from cerebro_db.server import joining

return joining.state_weights(plpy, GD, token)
