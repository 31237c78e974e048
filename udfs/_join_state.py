return relay.step("joining.join_state", token, token is None, state)
