return relay.memory_mb()
