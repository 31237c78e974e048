return relay.driver("settings.set_value", name, value)
