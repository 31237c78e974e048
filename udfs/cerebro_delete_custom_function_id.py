return relay.driver("models.delete_custom_function", object_table, id, None)
