from cerebro_db.server import exports

return exports.export_model(plpy, GD, task, format, state)
