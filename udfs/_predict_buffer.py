from cerebro_db.server import predicting

return predicting.predict_buffer(plpy, GD, token, data, count)
