return relay.trainer("settings.gpus_here", source)
