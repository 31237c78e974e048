return relay.trainer("averaging.average_final", token)
