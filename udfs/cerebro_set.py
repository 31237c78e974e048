from cerebro_db.server import settings

return settings.set_value(plpy, name, value)
