-- Training of a whole model selection table.

CREATE OR REPLACE FUNCTION cerebro.cerebro_fit_multiple(
    source_table              text,
    model_output_table        text,
    model_selection_table     text,
    num_iterations            integer,
    use_gpus                  boolean DEFAULT false,
    validation_table          text DEFAULT NULL,
    metrics_compute_frequency integer DEFAULT NULL,
    warm_start                boolean DEFAULT false,
    name                      text DEFAULT NULL,
    description               text DEFAULT NULL,
    use_caching               boolean DEFAULT true,
    seed                      bigint DEFAULT 0,
    num_workers               integer DEFAULT NULL,
    durability                text DEFAULT 'hop',
    max_seconds               double precision DEFAULT NULL,
    schedule                  text DEFAULT 'hopper',
    replace                   boolean DEFAULT false,
    wait                      boolean DEFAULT true,
    priority                  integer DEFAULT 0,
    strategy                  text DEFAULT NULL,
    strategy_params           text DEFAULT NULL,
    deterministic             boolean DEFAULT NULL)
RETURNS bigint LANGUAGE plpython3u AS {{ udf('cerebro_fit_multiple') }};
COMMENT ON FUNCTION cerebro.cerebro_fit_multiple(text, text, text, integer, boolean, text, integer, boolean, text, text, boolean, bigint, integer, text, double precision, text, boolean, boolean, integer, text, text, boolean) IS
'Trains every configuration of a model selection table on a packed table by model hopper parallelism; returns the run_id and leaves the tables <model_output_table>, _info, _summary, _states and _history. durability: hop, or epoch where a crash of the server may take back what was done since the last epoch; max_seconds: the run is paused then; schedule: hopper, or rotation where one statement shall train on all segments at once; strategy: one of these, auto, task, averaging or another way to train, with parameters of its own in strategy_params; deterministic := true refuses those of which a call does not always have the same results. wait := false: returns the run_id at once, and the run goes on without the session, as a job with that priority (see cerebro.jobs).';

CREATE OR REPLACE FUNCTION cerebro.cerebro_fit(
    source_table              text,
    model_output_table        text,
    model_arch_table          text,
    model_id                  integer,
    compile_params            text,
    fit_params                text,
    num_iterations            integer,
    use_gpus                  boolean DEFAULT false,
    validation_table          text DEFAULT NULL,
    metrics_compute_frequency integer DEFAULT NULL,
    warm_start                boolean DEFAULT false,
    name                      text DEFAULT NULL,
    description               text DEFAULT NULL,
    object_table              text DEFAULT NULL,
    use_caching               boolean DEFAULT true,
    seed                      bigint DEFAULT 0,
    durability                text DEFAULT 'hop',
    max_seconds               double precision DEFAULT NULL,
    replace                   boolean DEFAULT false,
    wait                      boolean DEFAULT true,
    priority                  integer DEFAULT 0,
    strategy                  text DEFAULT NULL,
    strategy_params           text DEFAULT NULL,
    deterministic             boolean DEFAULT NULL)
RETURNS bigint LANGUAGE plpython3u AS {{ udf('cerebro_fit') }};
COMMENT ON FUNCTION cerebro.cerebro_fit(text, text, text, integer, text, text, integer, boolean, text, integer, boolean, text, text, text, boolean, bigint, text, double precision, boolean, boolean, integer, text, text, boolean) IS
'Trains one model of an architecture table on a packed table, as cerebro_fit_multiple trains many; returns the run_id and leaves the same tables, where the model has mst_key 1. strategy: auto where none is given, so that several workers share the batches of a large model. wait := false: returns the run_id at once, and the run goes on without the session, as a job with that priority (see cerebro.jobs).';

CREATE OR REPLACE FUNCTION cerebro.cerebro_resume(
    run_id      bigint,
    max_seconds double precision DEFAULT NULL,
    num_workers integer DEFAULT NULL,
    any_version boolean DEFAULT false,
    model_output_table text DEFAULT NULL,
    wait        boolean DEFAULT true,
    priority    integer DEFAULT 0)
RETURNS bigint LANGUAGE plpython3u AS {{ udf('cerebro_resume') }};
COMMENT ON FUNCTION cerebro.cerebro_resume(bigint, double precision, integer, boolean, text, boolean, integer) IS
'Goes on with a run that was interrupted, cancelled, paused or failed, from its last committed hops; the results are those of a run that was never disturbed. Returns the run_id. any_version: also where other versions of TensorFlow, or another processor, may give other results. model_output_table: another name for the tables of models. wait := false: returns the run_id at once, and the run goes on without the session, as a job with that priority (see cerebro.jobs).';

CREATE OR REPLACE FUNCTION cerebro.cerebro_cancel(run_id bigint, mst_key integer DEFAULT NULL)
RETURNS text LANGUAGE plpython3u AS {{ udf('cerebro_cancel') }};
COMMENT ON FUNCTION cerebro.cerebro_cancel(bigint, integer) IS
'Stops a run that another session drives, or one of its configurations; what is committed stays, and the run can be resumed. Returns the status afterwards.';

CREATE OR REPLACE FUNCTION cerebro.cerebro_pause(run_id bigint)
RETURNS text LANGUAGE plpython3u AS {{ udf('cerebro_pause') }};
COMMENT ON FUNCTION cerebro.cerebro_pause(bigint) IS
'Stops a run that another session drives, whose call then returns without an error; cerebro_resume goes on with it. Returns the status afterwards.';

CREATE OR REPLACE FUNCTION cerebro.cerebro_drop_run(run_id bigint)
RETURNS void LANGUAGE plpython3u AS {{ udf('cerebro_drop_run') }};
COMMENT ON FUNCTION cerebro.cerebro_drop_run(bigint) IS
'Removes a run that has stopped from the catalog, and its states. The output tables stay.';

CREATE OR REPLACE FUNCTION cerebro._vacuum(
    older_than double precision, OUT run_id bigint, OUT bytes bigint)
RETURNS SETOF record LANGUAGE plpython3u AS {{ udf('_vacuum') }};
COMMENT ON FUNCTION cerebro._vacuum(double precision) IS
'Internal: cerebro_vacuum with seconds.';

CREATE OR REPLACE FUNCTION cerebro.cerebro_vacuum(
    older_than interval DEFAULT '7 days', OUT run_id bigint, OUT bytes bigint)
RETURNS SETOF record LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
    SELECT v.run_id, v.bytes FROM cerebro._vacuum(extract(epoch FROM $1)::double precision) v
$$;
COMMENT ON FUNCTION cerebro.cerebro_vacuum(interval) IS
'Removes the states of runs that stopped so long ago, and states that belong to no run; administrators do it for all. Such a run can no longer be resumed; its record stays. Returns what was removed.';

CREATE OR REPLACE FUNCTION cerebro.cerebro_set(name text, value text)
RETURNS void LANGUAGE plpython3u AS {{ udf('cerebro_set') }};
COMMENT ON FUNCTION cerebro.cerebro_set(text, text) IS
'Sets what holds for the whole database, see cerebro.settings; NULL brings the default back. For members of cerebro_admin.';
