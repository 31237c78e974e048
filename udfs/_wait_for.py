return relay.driver("jobs.wait_for", what, number, seconds)
