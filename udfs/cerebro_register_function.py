from cerebro_db.server import functions

return functions.register(plpy, name, path)
