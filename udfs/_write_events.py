from cerebro_db.server import events

return events.write_events(plpy, GD, task)
