return relay.trainer("predicting.predict_buffer", token, data, count)
