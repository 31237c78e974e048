return relay.trainer("training.group_hops", token)
