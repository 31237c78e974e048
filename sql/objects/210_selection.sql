-- Configurations: which models are trained with which parameters.

{{ function('cerebro_generate_configs') }}

{{ function('cerebro_load_configs') }}
