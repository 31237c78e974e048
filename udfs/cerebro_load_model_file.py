from cerebro_db.server import model_loading

return model_loading.load_model_file(plpy, GD, model_arch_table, file, name, description)
