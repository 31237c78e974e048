return relay.trainer("scoring.begin_prediction", task, state)
