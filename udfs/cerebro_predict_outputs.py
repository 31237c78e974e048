return relay.trainer("rows.predict_outputs", model_table, features, mst_key)
