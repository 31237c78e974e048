return relay.trainer("joining.state_weights", token)
