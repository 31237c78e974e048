from cerebro_db.server import registry

return registry.revoke(plpy, GD, name, role)
