return relay.numbers(data, "i")
