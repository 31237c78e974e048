return relay.driver("registry.revoke", name, role)
