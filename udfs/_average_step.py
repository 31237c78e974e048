return relay.step("averaging.average_step", token, token is None, weights, place, state)
