return relay.trainer("training.prepare_process", task, like=relay.like(-1, task))
