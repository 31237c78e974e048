return relay.driver("registry.rollback_alias", name, alias)
