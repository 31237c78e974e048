-- The catalog: runs, configurations, plan, hops, metrics, settings.

CREATE TABLE cerebro.catalog_settings (
    name  text PRIMARY KEY,
    value text NOT NULL
);

CREATE TABLE cerebro.catalog_runs (
    run_id                    bigserial PRIMARY KEY,
    owner                     name NOT NULL DEFAULT current_user,
    name                      text,
    description               text,
    source_table              text NOT NULL,
    validation_table          text,
    model_output_table        text NOT NULL,
    model_selection_table     text NOT NULL,
    num_iterations            integer NOT NULL,
    metrics_compute_frequency integer NOT NULL,
    warm_start                boolean NOT NULL,
    seed                      bigint NOT NULL,
    num_partitions            integer NOT NULL,
    num_workers               integer NOT NULL,
    threads                   integer NOT NULL,
    manifest                  json NOT NULL,
    status                    text NOT NULL,
    error                     text,
    driver_pid                integer NOT NULL,
    created                   timestamptz NOT NULL DEFAULT clock_timestamp(),
    started                   timestamptz,
    finished                  timestamptz
);

CREATE TABLE cerebro.catalog_configurations (
    run_id         bigint NOT NULL,
    mst_key        integer NOT NULL,
    model_id       integer NOT NULL,
    compile_params text NOT NULL,
    fit_params     text NOT NULL,
    hop_seconds    double precision NOT NULL,
    initial_seed   bigint NOT NULL,
    jit            boolean NOT NULL,
    steps_per_call integer NOT NULL,
    goal           text NOT NULL,
    status         text NOT NULL,
    error          text,
    PRIMARY KEY (run_id, mst_key)
);

CREATE TABLE cerebro.catalog_plan (
    run_id        bigint NOT NULL,
    epoch         integer NOT NULL,
    mst_key       integer NOT NULL,
    position      integer NOT NULL,
    partition_key integer NOT NULL,
    PRIMARY KEY (run_id, epoch, mst_key, position)
);

CREATE TABLE cerebro.catalog_hops (
    run_id        bigint NOT NULL,
    mst_key       integer NOT NULL,
    epoch         integer NOT NULL,
    position      integer NOT NULL,
    partition_key integer NOT NULL,
    worker        integer NOT NULL,
    pid           integer NOT NULL,
    started       timestamptz NOT NULL,
    finished      timestamptz NOT NULL,
    waited        double precision NOT NULL,
    read          double precision NOT NULL,
    trained       double precision NOT NULL,
    written       double precision NOT NULL,
    rows          bigint NOT NULL,
    loss          double precision NOT NULL,
    compiled      boolean NOT NULL,
    cached        boolean NOT NULL,
    memory_mb     integer NOT NULL,
    PRIMARY KEY (run_id, mst_key, epoch, position)
);

CREATE TABLE cerebro.catalog_metrics (
    run_id       bigint NOT NULL,
    mst_key      integer NOT NULL,
    epoch        integer NOT NULL,
    dataset      text NOT NULL,
    loss         double precision NOT NULL,
    metric_names text[] NOT NULL,
    metrics      double precision[] NOT NULL,
    elapsed      double precision NOT NULL,
    PRIMARY KEY (run_id, mst_key, epoch, dataset)
);

-- One table of states a run, owned by its caller, lives here while the run needs it.
CREATE SCHEMA cerebro_states;
GRANT USAGE, CREATE ON SCHEMA cerebro_states TO cerebro_user;

-- What a worker returns from a hop.
CREATE TYPE cerebro.visit_result AS (
    state         bytea,
    rows          bigint,
    loss          double precision,
    read_seconds  double precision,
    train_seconds double precision,
    compiled      boolean,
    cached        boolean,
    kept          text[],
    memory_mb     integer,
    trained_at    double precision
);

GRANT SELECT ON cerebro.catalog_settings TO cerebro_user;
GRANT SELECT, INSERT, UPDATE ON cerebro.catalog_runs, cerebro.catalog_configurations TO cerebro_user;
GRANT SELECT, INSERT ON cerebro.catalog_plan, cerebro.catalog_hops, cerebro.catalog_metrics TO cerebro_user;
GRANT USAGE ON SEQUENCE cerebro.catalog_runs_run_id_seq TO cerebro_user;
