from cerebro_db.server import predicting_spread

return predicting_spread.predict_spread(plpy, GD, kind, number, chunk, task, data, id)
