return relay.trainer("models.read_file", token)
