return relay.trainer("training.saved_state", token)
