return relay.driver("models.unregister_function", name)
