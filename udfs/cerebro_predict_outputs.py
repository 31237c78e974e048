from cerebro_db.server import rows

return rows.predict_outputs(plpy, GD, model_table, features, mst_key)
