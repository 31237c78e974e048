from cerebro_db.server import predicting

return predicting.begin_prediction(plpy, GD, task, state)
