return relay.driver("registry.set_alias", name, alias, version)
