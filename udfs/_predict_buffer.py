return relay.trainer("scoring.predict_buffer", token, data, count)
