-- Models as files: out of the database, and into it.

CREATE OR REPLACE FUNCTION cerebro._export_model(task text, format text, state bigint)
RETURNS bytea LANGUAGE plpython3u AS {{ udf('_export_model') }};
COMMENT ON FUNCTION cerebro._export_model(text, text, bigint) IS
'Internal: writes the file of a model from a joined state.';

CREATE OR REPLACE FUNCTION cerebro.cerebro_export(
    model_table text, mst_key integer DEFAULT NULL, format text DEFAULT 'keras')
RETURNS bytea LANGUAGE plpython3u AS {{ udf('cerebro_export') }};
COMMENT ON FUNCTION cerebro.cerebro_export(text, integer, text) IS
'A trained model, of a table or registered, as the bytes of a file. format: keras for Keras'' own file, onnx, or npz for arrays of NumPy. mst_key may be left out where there is one model.';

CREATE OR REPLACE FUNCTION cerebro._read_model_file(
    token bigint, OUT model_arch text, OUT model_weights bytea)
LANGUAGE plpython3u AS {{ udf('_read_model_file') }};
COMMENT ON FUNCTION cerebro._read_model_file(bigint) IS
'Internal: the architecture in a file of Keras, which was joined in this session, and the first part of its weights; with NULL the next part, NULL after the last one.';

CREATE OR REPLACE FUNCTION cerebro.cerebro_load_model_file(
    model_arch_table text, file bytea, name text DEFAULT NULL, description text DEFAULT NULL)
RETURNS integer LANGUAGE plpython3u AS {{ udf('cerebro_load_model_file') }};
COMMENT ON FUNCTION cerebro.cerebro_load_model_file(text, bytea, text, text) IS
'Puts the model of a .keras file into an architecture table, as cerebro_load_model does, and returns its model_id. Architecture and weights are read, nothing else of the file.';
