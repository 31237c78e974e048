return relay.step("training.join_state", token, token is None, state)
