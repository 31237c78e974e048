return relay.driver("registry.describe", name, description, tags)
