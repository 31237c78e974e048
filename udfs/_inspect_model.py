return relay.trainer("models.inspect", model_arch, weights)
