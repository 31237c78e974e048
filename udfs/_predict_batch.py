return relay.trainer("scoring.predict_batch", token, data, count, known)
