return relay.trainer("scoring.combine", task)
