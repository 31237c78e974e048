-- The registry: models with versions, aliases, and who else may use them.

-- Names are unique for each owner: nobody can take a name of someone else, or find out that it is taken.
-- No second unique key anywhere here: a distributed table could not have it.
CREATE TABLE cerebro.catalog_models (
    model_id    bigserial NOT NULL,
    owner       oid NOT NULL DEFAULT cerebro._role(),
    name        text NOT NULL,
    description text,
    tags        json NOT NULL DEFAULT '{}',
    versions    integer NOT NULL DEFAULT 0,
    created     timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (owner, name)
);
CREATE INDEX catalog_models_model_id ON cerebro.catalog_models (model_id);

-- A version has all that a prediction needs, but for its state; and where it comes from.
CREATE TABLE cerebro.catalog_model_versions (
    version_id     serial NOT NULL,
    model_id       bigint NOT NULL,
    version        integer NOT NULL,
    description    text,
    tags           json NOT NULL DEFAULT '{}',
    run_id         bigint NOT NULL,
    mst_key        integer NOT NULL,
    model_arch     text NOT NULL,
    compile_params text NOT NULL,
    fit_params     text NOT NULL,
    facts          json NOT NULL,
    lineage        json NOT NULL,
    registered_by  oid NOT NULL DEFAULT cerebro._role(),
    registered     timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (model_id, version)
);
CREATE INDEX catalog_model_versions_version_id ON cerebro.catalog_model_versions (version_id);

CREATE TABLE cerebro.catalog_model_states (
    model_id bigint NOT NULL,
    version  integer NOT NULL,
    chunk    integer NOT NULL,
    state    bytea NOT NULL,
    PRIMARY KEY (model_id, version, chunk)
);
ALTER TABLE cerebro.catalog_model_states ALTER COLUMN state SET STORAGE EXTERNAL;

-- Every change of an alias is a row, the last one counts; version is NULL where it was removed.
-- previous: the change that a rollback goes back to.
CREATE TABLE cerebro.catalog_model_aliases (
    change_id  bigserial NOT NULL,
    model_id   bigint NOT NULL,
    alias      text NOT NULL,
    version    integer,
    previous   bigint,
    changed_by oid NOT NULL DEFAULT cerebro._role(),
    changed    timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX catalog_model_aliases_model_id ON cerebro.catalog_model_aliases (model_id, alias, change_id);

CREATE TABLE cerebro.catalog_model_grants (
    model_id   bigint NOT NULL,
    grantee    oid NOT NULL,
    granted_by oid NOT NULL DEFAULT cerebro._role(),
    granted    timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (model_id, grantee)
);

ALTER TABLE cerebro.catalog_models OWNER TO cerebro_owner;
ALTER TABLE cerebro.catalog_model_versions OWNER TO cerebro_owner;
ALTER TABLE cerebro.catalog_model_states OWNER TO cerebro_owner;
ALTER TABLE cerebro.catalog_model_aliases OWNER TO cerebro_owner;
ALTER TABLE cerebro.catalog_model_grants OWNER TO cerebro_owner;
GRANT USAGE ON SEQUENCE cerebro.catalog_models_model_id_seq,
    cerebro.catalog_model_versions_version_id_seq, cerebro.catalog_model_aliases_change_id_seq
    TO cerebro_user;
