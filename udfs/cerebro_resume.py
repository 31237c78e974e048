from cerebro_db.server import fitting

return fitting.resume(plpy, GD, run_id, max_seconds, num_workers, any_version, model_output_table)
