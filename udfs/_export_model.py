return relay.trainer("registry.export_model", task, format, state)
