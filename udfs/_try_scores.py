from cerebro_db.server import scoring

return scoring.try_scores(plpy, GD, task)
