from cerebro_db.server import registry

return registry.rollback_alias(plpy, GD, name, alias)
