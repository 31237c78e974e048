return relay.trainer("training.release")
