return relay.driver("settings.installed")
