from cerebro_db.server import registry

return registry.grant(plpy, GD, name, role)
