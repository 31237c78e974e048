from cerebro_db.server import encoding

return encoding.create_encoder(plpy, GD, source_table, training_table, function_name, replace)
