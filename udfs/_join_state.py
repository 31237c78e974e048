from cerebro_db.server import joining

return joining.join_state(plpy, GD, token, state)
