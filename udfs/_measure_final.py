return relay.trainer("scoring.measure_final", token)
