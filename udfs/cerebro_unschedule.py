return relay.driver("jobs.unschedule", name)
