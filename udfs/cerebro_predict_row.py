from cerebro_db.server import rows

return rows.predict_row(plpy, GD, model_table, features, mst_key)
