return relay.driver("exports.export", model_table, mst_key, format)
