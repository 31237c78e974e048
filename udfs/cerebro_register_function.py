return relay.trainer("functions.register", name, path)
