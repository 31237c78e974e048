return relay.trainer("predicting_spread.predict_spread", kind, number, chunk, task, data, id)
