from cerebro_db.server import registry

return registry.register(plpy, GD, run_id, mst_key, name, description, tags)
