return relay.driver("jobs.schedule", name, cron, calls, on_success, priority, timer)
