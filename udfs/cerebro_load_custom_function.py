return relay.driver("models.load_custom_function", object_table, object, name, description)
