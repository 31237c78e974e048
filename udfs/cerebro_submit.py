return relay.driver("jobs.submit", calls, on_success, priority)
