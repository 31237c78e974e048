return relay.driver(
    "models.mlp",
    inputs=inputs,
    hidden=hidden,
    outputs=outputs,
    activation=activation,
    dropout=dropout,
    output_activation=output_activation,
)
