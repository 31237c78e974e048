return relay.trainer("rows.predict_row", model_table, relay.row(features), mst_key)
