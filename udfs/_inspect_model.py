return relay.trainer("models.inspect", model_arch, model_weights)
