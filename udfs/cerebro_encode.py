from cerebro_db.server import encoding

return encoding.encode(plpy, GD, source_table, training_table, output_table, id_col, replace)
