return relay.trainer("models.register_function", name, path)
