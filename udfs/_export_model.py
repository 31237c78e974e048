return relay.trainer("exports.export_model", task, format, state)
