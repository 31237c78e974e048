return relay.trainer("training.try_peers", task)
