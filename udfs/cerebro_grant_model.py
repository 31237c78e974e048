return relay.driver("registry.grant", name, role)
