from cerebro_db.server import memory

return memory.know_functions(plpy, GD, functions)
