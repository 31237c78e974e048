from cerebro_db.server import outputs

return outputs.drop(plpy, GD, output_table)
