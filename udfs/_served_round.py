return relay.trainer("training.served_round", token)
