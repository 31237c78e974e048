from cerebro_db.server import registry

return registry.set_alias(plpy, GD, name, alias, version)
