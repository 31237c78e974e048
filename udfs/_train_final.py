return relay.trainer("training.train_final", token)
