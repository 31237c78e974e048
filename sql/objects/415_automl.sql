-- From a table to a registered model.

{{ function('cerebro_automl') }}
