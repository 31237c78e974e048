return relay.trainer(
    "training.prepare", threads, use_gpus, cache_bytes, run_id, place, like=[threads, use_gpus]
)
