from cerebro_db.server import functions

return functions.unregister(plpy, name)
