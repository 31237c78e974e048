return relay.driver("encoding.encode", source_table, training_table, output_table, id_col, replace)
