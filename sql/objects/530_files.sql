-- Models as files: out of the database, and into it.

CREATE OR REPLACE FUNCTION cerebro._export_model(task text, format text, state bigint)
RETURNS bytea LANGUAGE plpython3u AS {{ plpython('return relay.trainer("registry.export_model", task, format, state)') }};
COMMENT ON FUNCTION cerebro._export_model(text, text, bigint) IS
'Internal: writes the file of a model from a joined state, and returns its first part; without a task the next part, NULL after the last one.';

{{ function('cerebro_export') }}

CREATE OR REPLACE FUNCTION cerebro._read_model_file(
    token bigint, OUT model_arch text, OUT model_weights bytea)
LANGUAGE plpython3u AS {{ plpython('return relay.trainer("models.read_file", token)') }};
COMMENT ON FUNCTION cerebro._read_model_file(bigint) IS
'Internal: the architecture in a file of Keras, which was joined in this session, and the first part of its weights; with NULL the next part, NULL after the last one.';

{{ function('cerebro_load_model_file') }}
