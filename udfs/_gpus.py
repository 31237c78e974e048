return relay.trainer("hosts.gpus_here", source)
