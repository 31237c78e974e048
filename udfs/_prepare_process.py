return relay.trainer("training.prepare_process", task)
