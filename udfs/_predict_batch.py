from cerebro_db.server import predicting

return predicting.predict_batch(plpy, GD, token, data, count, known)
