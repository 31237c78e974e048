-- The model registry: versions of trained models, aliases, grants.

{{ function('cerebro_register_model') }}

{{ function('cerebro_set_alias') }}

{{ function('cerebro_rollback_alias') }}

{{ function('cerebro_describe_model') }}

{{ function('cerebro_grant_model') }}

{{ function('cerebro_revoke_model') }}

{{ function('cerebro_drop_model') }}
