return relay.driver("jobs.start_schedule", name)
