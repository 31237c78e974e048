return relay.driver("functions.unregister", name)
