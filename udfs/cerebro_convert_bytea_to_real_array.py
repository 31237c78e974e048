return relay.numbers(data, "f")
