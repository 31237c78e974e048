from cerebro_db.server import training

return training.prepare(plpy, GD, threads, use_gpus, cache_bytes, run_id, place)
