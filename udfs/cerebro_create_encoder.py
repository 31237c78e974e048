return relay.driver("encoding.create_encoder", source_table, training_table, function_name, replace)
