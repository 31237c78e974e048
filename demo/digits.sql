-- The whole job in SQL: pack, describe models, train a grid, look at the results, predict.

-- 1,797 images of 8 x 8 pixels, a label each; every sixth is kept to validate with.
SELECT split, count(*) AS images FROM digits GROUP BY split ORDER BY split;

CREATE VIEW digits_train AS SELECT id, image, label FROM digits WHERE split = 'training';
CREATE VIEW digits_test  AS SELECT id, image, label FROM digits WHERE split = 'validation';

-- Pack: rows shuffled, spread over partitions, in byte buffers that train without conversion.
SELECT cerebro_pack('digits_train', 'digits_packed', 'label', 'image', normalizing_const := 16.0);
SELECT cerebro_pack_validation('digits_test', 'digits_val', 'label', 'image', 'digits_packed');

-- Two architectures, as Keras' model.to_json() describes them.
SELECT cerebro_load_model('digits_models', $$
{"module": "keras", "class_name": "Sequential", "config": {"name": "mlp", "layers": [
  {"module": "keras.layers", "class_name": "InputLayer", "config": {"batch_shape": [null, 8, 8, 1]}},
  {"module": "keras.layers", "class_name": "Flatten", "config": {}},
  {"module": "keras.layers", "class_name": "Dense", "config": {"units": 64, "activation": "relu"}},
  {"module": "keras.layers", "class_name": "Dense", "config": {"units": 10, "activation": "softmax"}}]}}
$$, name := 'mlp', description := 'one hidden layer');

SELECT cerebro_load_model('digits_models', $$
{"module": "keras", "class_name": "Sequential", "config": {"name": "cnn", "layers": [
  {"module": "keras.layers", "class_name": "InputLayer", "config": {"batch_shape": [null, 8, 8, 1]}},
  {"module": "keras.layers", "class_name": "Conv2D", "config": {"filters": 16, "kernel_size": [3, 3], "activation": "relu"}},
  {"module": "keras.layers", "class_name": "MaxPooling2D", "config": {"pool_size": [2, 2]}},
  {"module": "keras.layers", "class_name": "Flatten", "config": {}},
  {"module": "keras.layers", "class_name": "Dense", "config": {"units": 32, "activation": "relu"}},
  {"module": "keras.layers", "class_name": "Dense", "config": {"units": 10, "activation": "softmax"}}]}}
$$, name := 'cnn', description := 'a small convolutional net');

-- A grid: 2 architectures x 2 learning rates x 2 batch sizes x 2 L2 strengths.
SELECT cerebro_generate_configs('digits_models', 'digits_configs', ARRAY[1, 2],
    $$ {'loss': ['sparse_categorical_crossentropy'], 'metrics': ['accuracy'], 'l2': [0.0, 0.0001],
        'optimizer_params_list': [{'optimizer': ['Adam'], 'lr': [0.001, 0.01]}]} $$,
    $$ {'batch_size': [16, 64], 'epochs': [1]} $$);

SELECT count(*) AS configurations FROM digits_configs;

-- Train all of them.
SELECT cerebro_fit_multiple('digits_packed', 'digits_out', 'digits_configs', 10,
                            validation_table := 'digits_val', name := 'digits');

-- Who is best?
SELECT rank, mst_key, model_id, compile_params, fit_params,
       round(validation_metrics[1]::numeric, 4) AS accuracy, round(validation_loss::numeric, 4) AS loss
  FROM cerebro.leaderboard
 WHERE run_id = (SELECT run_id FROM digits_out_summary)
 ORDER BY rank, mst_key LIMIT 5;

SELECT run_id, status, epoch, hops_done, rows_per_second, best_mst_key, best_so_far
  FROM cerebro.progress
 WHERE run_id = (SELECT run_id FROM digits_out_summary);

-- Predict with the best one, and see how good that is.
SELECT best_mst_key AS best FROM cerebro.progress
 WHERE run_id = (SELECT run_id FROM digits_out_summary) \gset
SELECT cerebro_predict('digits_out', 'digits_test', 'id', 'image', 'digits_predicted', 'response',
                       mst_key := :best);

SELECT count(*) AS images, count(nullif(p.class_value = t.label::text, false)) AS right,
       round(avg((p.class_value = t.label::text)::int), 4) AS accuracy
  FROM digits_predicted p JOIN digits_test t ON t.id = p.id;
