return relay.driver("searching.hyperband_table", schedule_table, r, eta, skip_last, replace)
