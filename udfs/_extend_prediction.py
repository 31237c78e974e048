return relay.trainer("predicting.extend_prediction", token, task, state)
