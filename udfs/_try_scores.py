return relay.trainer("scoring.try_scores", task)
