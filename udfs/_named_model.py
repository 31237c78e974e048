return relay.trainer("models.named_model", name, shape, units, classes)
