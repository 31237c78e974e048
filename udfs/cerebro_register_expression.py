return relay.driver("models.register_expression", name, expression)
