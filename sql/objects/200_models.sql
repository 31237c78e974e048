-- Architectures: models by model_id, checked when they are loaded.

CREATE OR REPLACE FUNCTION cerebro.cerebro_load_model(
    model_arch_table text,
    model_arch json,
    model_weights bytea DEFAULT NULL,
    name text DEFAULT NULL,
    description text DEFAULT NULL,
    packed_table text DEFAULT NULL
) RETURNS integer LANGUAGE plpython3u AS {{ udf('cerebro_load_model') }};
COMMENT ON FUNCTION cerebro.cerebro_load_model(text, json, bytea, text, text, text) IS
'Puts a model into an architecture table, which is made if it is not there, and returns its model_id. model_arch: the text of a model''s to_json() of Keras 3 or 2, checked against a list of allowed layers and by building the model; model_weights: where training starts, float32 in the order of get_weights(); packed_table: whose shapes it gets where it leaves them open.';

-- The one with a text is there for literals, which would otherwise be of an ambiguous type.
CREATE OR REPLACE FUNCTION cerebro.cerebro_load_model(
    model_arch_table text,
    model_arch jsonb,
    model_weights bytea DEFAULT NULL,
    name text DEFAULT NULL,
    description text DEFAULT NULL,
    packed_table text DEFAULT NULL
) RETURNS integer LANGUAGE plpython3u AS {{ udf('cerebro_load_model') }};
COMMENT ON FUNCTION cerebro.cerebro_load_model(text, jsonb, bytea, text, text, text) IS
'The same with the architecture as jsonb.';

CREATE OR REPLACE FUNCTION cerebro.cerebro_load_model(
    model_arch_table text,
    model_arch text,
    model_weights bytea DEFAULT NULL,
    name text DEFAULT NULL,
    description text DEFAULT NULL,
    packed_table text DEFAULT NULL
) RETURNS integer LANGUAGE plpython3u AS {{ udf('cerebro_load_model') }};
COMMENT ON FUNCTION cerebro.cerebro_load_model(text, text, bytea, text, text, text) IS
'The same with the architecture as text: JSON, or the name of a net such as ResNet50, which is made for the rows and classes of packed_table.';

CREATE OR REPLACE FUNCTION cerebro.cerebro_delete_model(
    model_arch_table text,
    model_id integer
) RETURNS void LANGUAGE plpython3u AS {{ udf('cerebro_delete_model') }};
COMMENT ON FUNCTION cerebro.cerebro_delete_model(text, integer) IS
'Deletes a model from an architecture table, and the table with its last model.';

CREATE OR REPLACE FUNCTION cerebro.cerebro_mlp(
    inputs integer DEFAULT NULL,
    hidden integer[] DEFAULT ARRAY[64, 64],
    outputs integer DEFAULT NULL,
    activation text DEFAULT 'relu',
    dropout double precision DEFAULT 0,
    output_activation text DEFAULT NULL
) RETURNS json LANGUAGE plpython3u AS {{ udf('cerebro_mlp') }};
COMMENT ON FUNCTION cerebro.cerebro_mlp(integer, integer[], integer, text, double precision, text) IS
'The JSON of a multilayer perceptron for cerebro_load_model. inputs and outputs that are NULL are filled in there from packed_table.';

CREATE OR REPLACE FUNCTION cerebro._named_model(name text, shape text, units integer, classes boolean)
RETURNS text LANGUAGE plpython3u AS {{ udf('_named_model') }};
COMMENT ON FUNCTION cerebro._named_model(text, text, integer, boolean) IS
'Internal: the JSON of a net that has a name, for rows of a shape.';
