return relay.trainer("predicting.begin_prediction", task, state)
