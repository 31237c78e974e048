from cerebro_db.server import scoring

return scoring.measure_final(plpy, GD, token)
