return relay.driver("model_loading.load_model_file", model_arch_table, file, name, description)
