from cerebro_db.server import predicting

return predicting.extend_prediction(plpy, GD, token, task, state)
