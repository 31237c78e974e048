from cerebro_db.server import registry

return registry.describe(plpy, GD, name, description, tags)
