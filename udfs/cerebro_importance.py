return relay.driver("searching.importance", run_id, objective, epoch)
