return relay.driver("version.installed")
