relay.know_network(settings)
