-- Configurations: which models are trained with which parameters.

CREATE OR REPLACE FUNCTION cerebro.cerebro_generate_configs(
    model_arch_table text,
    model_selection_table text,
    model_id_list integer[],
    compile_params_grid text,
    fit_params_grid text,
    search_type text DEFAULT 'grid',
    num_configs integer DEFAULT NULL,
    random_state integer DEFAULT NULL,
    object_table text DEFAULT NULL,
    replace boolean DEFAULT false
) RETURNS void LANGUAGE plpython3u AS {{ udf('cerebro_generate_configs') }};
COMMENT ON FUNCTION cerebro.cerebro_generate_configs(
    text, text, integer[], text, text, text, integer, integer, text, boolean) IS
'Writes configurations (mst_key, model_id, compile_params, fit_params) into a model selection table and makes <table>_summary; a table that exists and is of the same architectures gets those that it does not have. Grids are dictionaries of lists, such as {''loss'': [''mse''], ''optimizer_params_list'': [{''optimizer'': [''Adam''], ''lr'': [0.001, 0.01]}], ''metrics'': [''mae'']} and {''batch_size'': [32, 256]}. search_type: grid for all combinations; random for num_configs of them, where [low, high, ''linear''|''log''|''log_near_one''] is a range; random_state makes that reproducible.';

CREATE OR REPLACE FUNCTION cerebro.cerebro_load_configs(
    model_arch_table text,
    model_selection_table text,
    model_id_list integer[],
    compile_params_list text[],
    fit_params_list text[],
    object_table text DEFAULT NULL,
    replace boolean DEFAULT false
) RETURNS void LANGUAGE plpython3u AS {{ udf('cerebro_load_configs') }};
COMMENT ON FUNCTION cerebro.cerebro_load_configs(text, text, integer[], text[], text[], text, boolean) IS
'Makes a model selection table and <table>_summary with every combination of models, compile parameters, such as loss=''mse'',optimizer=''Adam(lr=0.1)'',metrics=[''mae''], and fit parameters, such as batch_size=32,epochs=1.';
