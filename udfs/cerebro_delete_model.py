return relay.driver("models.delete_model", model_arch_table, model_id)
