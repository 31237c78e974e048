from cerebro_db.server import exports

return exports.export(plpy, GD, model_table, mst_key, format)
