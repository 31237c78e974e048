from cerebro_db.server import results

return results.begin_prediction(plpy, GD, task, state)
