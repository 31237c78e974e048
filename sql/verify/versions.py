return relay.trainer("settings.libraries")
