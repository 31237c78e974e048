from cerebro_db.server import hosts

return hosts.gpus_here(plpy, source)
