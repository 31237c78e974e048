from cerebro_db.server import fitting

return fitting.vacuum(plpy, GD, older_than)
