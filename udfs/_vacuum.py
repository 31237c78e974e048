return relay.driver("fitting.vacuum", older_than)
