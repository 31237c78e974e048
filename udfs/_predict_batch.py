return relay.trainer("predicting.predict_batch", token, data, count, known)
