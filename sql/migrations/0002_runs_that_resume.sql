-- Runs that can be resumed, and a catalog in which everyone finds only what is theirs.

DROP VIEW IF EXISTS cerebro.progress;
DROP VIEW IF EXISTS cerebro.leaderboard;
DROP VIEW IF EXISTS cerebro.metrics;
DROP VIEW IF EXISTS cerebro.hops;
DROP VIEW IF EXISTS cerebro.runs;

-- An owner by its oid: a role that is renamed keeps its runs, one that takes a name over gets none.
CREATE FUNCTION cerebro._role() RETURNS oid
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT r.oid FROM pg_catalog.pg_roles r WHERE r.rolname = current_user
$$;
ALTER TABLE cerebro.catalog_runs ADD COLUMN role oid;
UPDATE cerebro.catalog_runs c SET role = r.oid FROM pg_catalog.pg_roles r WHERE r.rolname = c.owner;
UPDATE cerebro.catalog_runs SET role = cerebro._role() WHERE role IS NULL;
ALTER TABLE cerebro.catalog_runs DROP COLUMN owner;
ALTER TABLE cerebro.catalog_runs RENAME COLUMN role TO owner;
ALTER TABLE cerebro.catalog_runs
    ALTER COLUMN owner SET NOT NULL,
    ALTER COLUMN owner SET DEFAULT cerebro._role();

-- What a run must know of itself to go on in another session. NULL in runs of an earlier version.
ALTER TABLE cerebro.catalog_runs
    ADD COLUMN use_gpus          boolean,
    ADD COLUMN use_caching       boolean,
    ADD COLUMN durability        text,
    ADD COLUMN model_arch_table  text,
    ADD COLUMN output_schema     text,
    ADD COLUMN output_name       text,
    ADD COLUMN source_oid        oid,
    ADD COLUMN source_print      text,
    ADD COLUMN validation_oid    oid,
    ADD COLUMN validation_print  text,
    ADD COLUMN states            text,
    ADD COLUMN lock_key          bigint,
    ADD COLUMN cerebro_version   text,
    ADD COLUMN resumed           timestamptz,
    ADD COLUMN active            double precision NOT NULL DEFAULT 0;

-- Whoever drops a run drops these tables: nobody may name those of another run.
ALTER TABLE cerebro.catalog_runs
    ADD UNIQUE (states),
    ADD CHECK (states ~ '^run_[0-9a-f]{32}$');

-- Whether a configuration began with the state of an earlier run.
ALTER TABLE cerebro.catalog_configurations ADD COLUMN is_warm boolean NOT NULL DEFAULT false;

-- The models of a run as they were when it began, whatever becomes of the user's table.
CREATE TABLE cerebro.catalog_architectures (
    run_id        bigint NOT NULL,
    model_id      integer NOT NULL,
    model_arch    text NOT NULL,
    model_facts   text NOT NULL,
    model_weights bytea,
    PRIMARY KEY (run_id, model_id)
);
ALTER TABLE cerebro.catalog_architectures ALTER COLUMN model_weights SET STORAGE EXTERNAL;

-- What someone asks of the driver of a run, which looks here every so often.
CREATE TABLE cerebro.catalog_requests (
    request_id bigserial PRIMARY KEY,
    run_id     bigint NOT NULL,
    mst_key    integer,
    action     text NOT NULL CHECK (action IN ('cancel', 'pause')),
    role       oid NOT NULL DEFAULT cerebro._role(),
    requested  timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- Numbers that everyone can calculate with who sees the rows, whoever wrote them.
ALTER TABLE cerebro.catalog_hops
    ADD CHECK (started BETWEEN '2000-01-01' AND '3000-01-01'),
    ADD CHECK (finished BETWEEN '2000-01-01' AND '3000-01-01'),
    ADD CHECK (rows BETWEEN 0 AND 1000000000000000);
ALTER TABLE cerebro.catalog_runs
    ADD CHECK (num_partitions >= 1),
    ADD CHECK (num_iterations >= 1),
    ADD CHECK (active BETWEEN 0 AND 1e12),
    ADD CHECK (created BETWEEN '2000-01-01' AND '3000-01-01'),
    ADD CHECK (started BETWEEN '2000-01-01' AND '3000-01-01'),
    ADD CHECK (resumed BETWEEN '2000-01-01' AND '3000-01-01'),
    ADD CHECK (finished BETWEEN '2000-01-01' AND '3000-01-01');
-- A lock is one run's only: nobody can keep another run from being resumed or removed.
CREATE UNIQUE INDEX catalog_runs_lock_key ON cerebro.catalog_runs (lock_key);

-- A state may be larger than a value of the server can be: it is saved in chunks after the hop.
ALTER TYPE cerebro.visit_result DROP ATTRIBUTE state;
ALTER TYPE cerebro.visit_result ADD ATTRIBUTE token bigint;

-- Tables belong to a role that is no superuser; members of cerebro_user come through views.
ALTER TABLE cerebro.catalog_settings OWNER TO cerebro_owner;
ALTER TABLE cerebro.catalog_runs OWNER TO cerebro_owner;
ALTER TABLE cerebro.catalog_configurations OWNER TO cerebro_owner;
ALTER TABLE cerebro.catalog_architectures OWNER TO cerebro_owner;
ALTER TABLE cerebro.catalog_plan OWNER TO cerebro_owner;
ALTER TABLE cerebro.catalog_hops OWNER TO cerebro_owner;
ALTER TABLE cerebro.catalog_metrics OWNER TO cerebro_owner;
ALTER TABLE cerebro.catalog_requests OWNER TO cerebro_owner;
REVOKE ALL ON cerebro.catalog_settings, cerebro.catalog_runs, cerebro.catalog_configurations,
    cerebro.catalog_plan, cerebro.catalog_hops, cerebro.catalog_metrics FROM cerebro_user;
GRANT USAGE ON SEQUENCE cerebro.catalog_runs_run_id_seq, cerebro.catalog_requests_request_id_seq
    TO cerebro_user;
GRANT SELECT, INSERT, UPDATE, DELETE ON cerebro.catalog_settings TO cerebro_admin;

-- Whoever owns a schema may drop what is in it: administrators can remove the states of any run.
ALTER SCHEMA cerebro_states OWNER TO cerebro_admin;
