return relay.trainer("training.state_weights", token)
