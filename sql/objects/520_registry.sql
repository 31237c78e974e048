-- The model registry: versions of trained models, aliases, grants.

CREATE OR REPLACE FUNCTION cerebro.cerebro_register_model(
    run_id      bigint,
    mst_key     integer,
    name        text,
    description text DEFAULT NULL,
    tags        json DEFAULT NULL)
RETURNS integer LANGUAGE plpython3u AS {{ udf('cerebro_register_model') }};
COMMENT ON FUNCTION cerebro.cerebro_register_model(bigint, integer, text, text, json) IS
'Copies a model of a finished run into the registry, as the next version of the caller''s model of that name, which is made if it is not there; returns the version. It is used as ''model:name'', ''model:name@alias'' or ''model:name:version'', and needs no other table.';

CREATE OR REPLACE FUNCTION cerebro.cerebro_set_alias(name text, alias text, version integer)
RETURNS void LANGUAGE plpython3u AS {{ udf('cerebro_set_alias') }};
COMMENT ON FUNCTION cerebro.cerebro_set_alias(text, text, integer) IS
'Lets an alias such as champion mean a version of a model; NULL removes the alias.';

CREATE OR REPLACE FUNCTION cerebro.cerebro_rollback_alias(name text, alias text)
RETURNS integer LANGUAGE plpython3u AS {{ udf('cerebro_rollback_alias') }};
COMMENT ON FUNCTION cerebro.cerebro_rollback_alias(text, text) IS
'Lets an alias mean again what it meant before its last change; called again, what it meant before that. Returns that version.';

CREATE OR REPLACE FUNCTION cerebro.cerebro_describe_model(
    name text, description text DEFAULT NULL, tags json DEFAULT NULL)
RETURNS void LANGUAGE plpython3u AS {{ udf('cerebro_describe_model') }};
COMMENT ON FUNCTION cerebro.cerebro_describe_model(text, text, json) IS
'Sets the description and the tags of a model (name) or of a version (name:version); what is NULL stays as it is.';

CREATE OR REPLACE FUNCTION cerebro.cerebro_grant_model(name text, role text)
RETURNS void LANGUAGE plpython3u AS {{ udf('cerebro_grant_model') }};
COMMENT ON FUNCTION cerebro.cerebro_grant_model(text, text) IS
'Lets the members of a role use all versions of one''s model, and see where they come from; not change them.';

CREATE OR REPLACE FUNCTION cerebro.cerebro_revoke_model(name text, role text)
RETURNS void LANGUAGE plpython3u AS {{ udf('cerebro_revoke_model') }};
COMMENT ON FUNCTION cerebro.cerebro_revoke_model(text, text) IS
'Takes back what cerebro_grant_model gave.';

CREATE OR REPLACE FUNCTION cerebro.cerebro_drop_model(name text, version integer DEFAULT NULL)
RETURNS void LANGUAGE plpython3u AS {{ udf('cerebro_drop_model') }};
COMMENT ON FUNCTION cerebro.cerebro_drop_model(text, integer) IS
'Removes a version of a model, or the model with all versions, aliases and grants. Administrators may remove those of others.';
