from cerebro_db.server import results

return results.evaluate(plpy, GD, model_table, test_table, output_table, use_gpus, mst_key, replace)
