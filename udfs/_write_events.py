return relay.trainer("events.write_events", task)
