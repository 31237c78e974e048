from cerebro_db.server import registry

return registry.drop(plpy, GD, name, version)
