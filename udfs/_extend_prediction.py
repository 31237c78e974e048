return relay.trainer("scoring.extend_prediction", token, task, state)
