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
