return relay.driver(
    "model_loading.load_model", model_arch_table, model_arch, model_weights, name, description
)
