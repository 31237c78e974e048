return relay.driver("model_loading.delete_model", model_arch_table, model_id)
