return relay.driver("jobs.wait_for", run_id, job_id, seconds)
