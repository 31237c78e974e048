from cerebro_db.server import results

return results.predict_batch(plpy, GD, token, data, count, known)
