return relay.driver("registry.drop", name, version)
