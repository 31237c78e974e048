from cerebro_db.server import model_loading

return model_loading.load_model(
    plpy, GD, model_arch_table, model_arch, model_weights, name, description
)
