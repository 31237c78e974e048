return relay.trainer("version.libraries")
