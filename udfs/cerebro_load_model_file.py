return relay.driver("models.load_model_file", model_arch_table, file, name, description)
