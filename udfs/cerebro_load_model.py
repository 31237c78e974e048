return relay.driver(
    "models.load_model",
    model_arch_table,
    model_arch,
    model_weights,
    name,
    description,
    packed_table,
)
