from cerebro_db.server import hosts

return hosts.gpu_configuration(plpy, GD, output_table, source, replace)
