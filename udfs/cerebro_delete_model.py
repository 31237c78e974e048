from cerebro_db.server import model_loading

return model_loading.delete_model(plpy, GD, model_arch_table, model_id)
