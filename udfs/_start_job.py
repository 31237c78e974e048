return relay.driver("jobs.work", job_id, role)
