-- Where the training of a configuration ends: callbacks may stop it early, or choose an earlier state.

ALTER TABLE cerebro.catalog_configurations
    ADD COLUMN stopped_epoch integer CHECK (stopped_epoch >= 1),
    ADD COLUMN best_epoch    integer CHECK (best_epoch >= 1),
    ADD COLUMN model_epoch   integer CHECK (model_epoch >= 1);

-- Functions of installed packages, registered by administrators: paths, no code.
CREATE TABLE cerebro.catalog_functions (
    name          text PRIMARY KEY,
    path          text NOT NULL,
    package       text NOT NULL,
    version       text NOT NULL,
    places        integer NOT NULL,
    registered_by oid NOT NULL DEFAULT cerebro._role(),
    registered    timestamptz NOT NULL DEFAULT clock_timestamp()
);
ALTER TABLE cerebro.catalog_functions OWNER TO cerebro_owner;
GRANT SELECT, INSERT, DELETE ON cerebro.catalog_functions TO cerebro_admin;
