-- Architectures: models by model_id, checked when they are loaded.

CREATE OR REPLACE FUNCTION cerebro.cerebro_load_model(
    model_arch_table text,
    model_arch json,
    model_weights bytea DEFAULT NULL,
    name text DEFAULT NULL,
    description text DEFAULT NULL
) RETURNS integer LANGUAGE plpython3u AS {{ udf('cerebro_load_model') }};
COMMENT ON FUNCTION cerebro.cerebro_load_model(text, json, bytea, text, text) IS
'Puts a model into an architecture table, which is made if it is not there, and returns its model_id. model_arch: the text of a model''s to_json() of Keras 3 or 2, checked against a list of allowed layers and by building the model; model_weights: where training starts, float32 in the order of get_weights().';

-- The one with a text is there for literals, which would otherwise be of an ambiguous type.
CREATE OR REPLACE FUNCTION cerebro.cerebro_load_model(
    model_arch_table text,
    model_arch jsonb,
    model_weights bytea DEFAULT NULL,
    name text DEFAULT NULL,
    description text DEFAULT NULL
) RETURNS integer LANGUAGE plpython3u AS {{ udf('cerebro_load_model') }};
COMMENT ON FUNCTION cerebro.cerebro_load_model(text, jsonb, bytea, text, text) IS
'The same with the architecture as jsonb.';

CREATE OR REPLACE FUNCTION cerebro.cerebro_load_model(
    model_arch_table text,
    model_arch text,
    model_weights bytea DEFAULT NULL,
    name text DEFAULT NULL,
    description text DEFAULT NULL
) RETURNS integer LANGUAGE plpython3u AS {{ udf('cerebro_load_model') }};
COMMENT ON FUNCTION cerebro.cerebro_load_model(text, text, bytea, text, text) IS
'The same with the architecture as text.';

CREATE OR REPLACE FUNCTION cerebro.cerebro_delete_model(
    model_arch_table text,
    model_id integer
) RETURNS void LANGUAGE plpython3u AS {{ udf('cerebro_delete_model') }};
COMMENT ON FUNCTION cerebro.cerebro_delete_model(text, integer) IS
'Deletes a model from an architecture table, and the table with its last model.';
