-- From a table to a registered model.

{{ function('cerebro_automl') }}

{{ function('cerebro_replay_automl') }}
