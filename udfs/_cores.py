return relay.cores()
