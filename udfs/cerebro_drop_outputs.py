from cerebro_db.server import outputs

return outputs.drop(plpy, output_table)
