-- Searches: the best model of a space of architectures and parameters.

{{ function('cerebro_search') }}

{{ function('cerebro_hyperband_schedule') }}

{{ function('cerebro_best') }}

{{ function('cerebro_importance') }}

{{ function('cerebro_add_configs') }}

{{ function('cerebro_stop_config') }}

{{ function('cerebro_clone') }}

{{ function('cerebro_narrow') }}

{{ function('cerebro_finish') }}

{{ function('cerebro_extend') }}

{{ function('cerebro_replay') }}
