from cerebro_db.server import scoring

return scoring.combine(plpy, GD, task)
