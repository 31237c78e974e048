return relay.driver("searching.hyperband_schedule", r, eta, skip_last)
