return relay.trainer("rows.predict_row", model_table, features, mst_key)
