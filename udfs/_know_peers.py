relay.know_peers(settings)
