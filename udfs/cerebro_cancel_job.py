return relay.driver("jobs.cancel", job_id)
