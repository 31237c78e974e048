yield from relay.surroundings()
yield from relay.trainer("version.limits", settings)
