yield from relay.surroundings()
yield from relay.trainer("settings.limits", settings)
