-- Architectures: models by model_id, checked when they are loaded.

{{ function('cerebro_load_model') }}

{{ function('cerebro_delete_model') }}

{{ function('cerebro_mlp') }}

{{ function('cerebro_tabular') }}
{{ function('cerebro_image') }}

CREATE OR REPLACE FUNCTION cerebro._named_model(name text, shape text, units integer, classes boolean)
RETURNS text LANGUAGE plpython3u AS {{ plpython('return relay.trainer("models.named_model", name, shape, units, classes)') }};
COMMENT ON FUNCTION cerebro._named_model(text, text, integer, boolean) IS
'Internal: the JSON of a net that has a name, for rows of a shape.';
