-- Searches: the best model of a space of architectures and parameters.

CREATE OR REPLACE FUNCTION cerebro.cerebro_search(
    source_table              text,
    model_output_table        text,
    model_arch_table          text,
    model_selection_table     text,
    model_id_list             integer[],
    compile_params_grid       text,
    fit_params_grid           text,
    automl_method             text DEFAULT 'hyperband',
    automl_params             text DEFAULT NULL,
    random_state              integer DEFAULT NULL,
    object_table              text DEFAULT NULL,
    use_gpus                  boolean DEFAULT false,
    validation_table          text DEFAULT NULL,
    metrics_compute_frequency integer DEFAULT NULL,
    name                      text DEFAULT NULL,
    description               text DEFAULT NULL,
    use_caching               boolean DEFAULT true,
    objective                 text DEFAULT NULL,
    early_stopping            text DEFAULT NULL,
    max_seconds               double precision DEFAULT NULL,
    max_epochs                integer DEFAULT NULL,
    max_configs               integer DEFAULT NULL,
    warm_start_run            bigint DEFAULT NULL,
    seed                      bigint DEFAULT 0,
    num_workers               integer DEFAULT NULL,
    concurrency               integer DEFAULT NULL,
    deterministic             boolean DEFAULT true,
    durability                text DEFAULT 'hop',
    schedule                  text DEFAULT 'hopper',
    replace                   boolean DEFAULT false,
    wait                      boolean DEFAULT true,
    priority                  integer DEFAULT 0)
RETURNS bigint LANGUAGE plpython3u AS {{ udf('cerebro_search') }};
COMMENT ON FUNCTION cerebro.cerebro_search(text, text, text, text, integer[], text, text, text, text, integer, text, boolean, text, integer, text, text, boolean, text, text, double precision, integer, integer, bigint, bigint, integer, integer, boolean, text, text, boolean, boolean, integer) IS
'Searches the best model of a space of architectures and parameters: trains configurations, stops what is hopeless, starts what is promising; returns the run_id. automl_method: grid, random, successive_halving, hyperband, asha, tpe (hyperopt of MADlib), bohb, pbt, gp or cma-es; automl_params: such as R=9, eta=3. objective: such as val_accuracy. Leaves the tables of cerebro_fit_multiple, and in model_selection_table the best configuration. wait := false: returns the run_id at once, and the run goes on without the session, as a job with that priority (see cerebro.jobs).';

CREATE OR REPLACE FUNCTION cerebro.cerebro_hyperband_schedule(
    r         integer,
    eta       integer DEFAULT 3,
    skip_last integer DEFAULT 0,
    OUT s integer, OUT i integer, OUT n_i integer, OUT r_i integer)
RETURNS SETOF record LANGUAGE plpython3u AS {{ udf('cerebro_hyperband_schedule') }};
COMMENT ON FUNCTION cerebro.cerebro_hyperband_schedule(integer, integer, integer) IS
'The brackets of Hyperband: in round i of bracket s, n_i configurations are trained until r_i epochs are done. r: most epochs of a configuration; eta: of so many one comes to the next round; skip_last: last rounds that each bracket lacks.';

CREATE OR REPLACE FUNCTION cerebro.cerebro_hyperband_schedule(
    schedule_table text,
    r              integer,
    eta            integer DEFAULT 3,
    skip_last      integer DEFAULT 0,
    replace        boolean DEFAULT false)
RETURNS void LANGUAGE plpython3u AS {{ udf('cerebro_hyperband_schedule_table') }};
COMMENT ON FUNCTION cerebro.cerebro_hyperband_schedule(text, integer, integer, integer, boolean) IS
'Writes the brackets of Hyperband into a table with the columns s, i, n_i, r_i.';

CREATE OR REPLACE FUNCTION cerebro.cerebro_best(
    run_id                bigint,
    n                     integer DEFAULT NULL,
    model_selection_table text DEFAULT NULL,
    replace               boolean DEFAULT false)
RETURNS text LANGUAGE plpython3u AS {{ udf('cerebro_best') }};
COMMENT ON FUNCTION cerebro.cerebro_best(bigint, integer, text, boolean) IS
'Makes a model selection table, <model_output_table>_best by default, from the n best trials of a search, which keep their mst_key; returns its name. Without n: the best one, or of several objectives the Pareto set.';

CREATE OR REPLACE FUNCTION cerebro.cerebro_importance(
    run_id    bigint,
    objective text DEFAULT NULL,
    epoch     integer DEFAULT NULL,
    OUT parameter text, OUT importance double precision, OUT trials integer)
RETURNS SETOF record LANGUAGE plpython3u AS {{ udf('cerebro_importance') }};
COMMENT ON FUNCTION cerebro.cerebro_importance(bigint, text, integer) IS
'How much of the variance of an objective each parameter of a search explains, by fANOVA, and from how many trials. epoch: after which they are compared; by default the one after which most trials were measured.';

CREATE OR REPLACE FUNCTION cerebro.cerebro_add_configs(
    run_id              bigint,
    model_id_list       integer[],
    compile_params_list text[],
    fit_params_list     text[],
    num_iterations      integer DEFAULT NULL)
RETURNS integer[] LANGUAGE plpython3u AS {{ udf('cerebro_add_configs') }};
COMMENT ON FUNCTION cerebro.cerebro_add_configs(bigint, integer[], text[], text[], integer) IS
'Adds configurations to a search that another session drives, every combination of models and parameters; returns their mst_keys.';

CREATE OR REPLACE FUNCTION cerebro.cerebro_stop_config(run_id bigint, mst_key integer)
RETURNS text LANGUAGE plpython3u AS {{ udf('cerebro_stop_config') }};
COMMENT ON FUNCTION cerebro.cerebro_stop_config(bigint, integer) IS
'Stops a trial of a search that another session drives, whose worker is free at once; its model is that after its last epoch. Returns the status of the trial.';

CREATE OR REPLACE FUNCTION cerebro.cerebro_clone(
    run_id         bigint,
    mst_key        integer,
    changes        text DEFAULT '',
    num_iterations integer DEFAULT NULL)
RETURNS integer LANGUAGE plpython3u AS {{ udf('cerebro_clone') }};
COMMENT ON FUNCTION cerebro.cerebro_clone(bigint, integer, text, integer) IS
'Begins a trial with the state of another one of a search that another session drives, and changed parameters, such as lr=0.003, batch_size=64; returns its mst_key.';

CREATE OR REPLACE FUNCTION cerebro.cerebro_narrow(
    run_id              bigint,
    model_id_list       integer[] DEFAULT NULL,
    compile_params_grid text DEFAULT NULL,
    fit_params_grid     text DEFAULT NULL)
RETURNS void LANGUAGE plpython3u AS {{ udf('cerebro_narrow') }};
COMMENT ON FUNCTION cerebro.cerebro_narrow(bigint, integer[], text, text) IS
'Has a search that another session drives propose from another space from now on; what is NULL stays as it was.';

CREATE OR REPLACE FUNCTION cerebro.cerebro_extend(
    run_id        bigint,
    automl_params text DEFAULT NULL,
    max_seconds   double precision DEFAULT NULL,
    max_epochs    integer DEFAULT NULL,
    max_configs   integer DEFAULT NULL)
RETURNS bigint LANGUAGE plpython3u AS {{ udf('cerebro_extend') }};
COMMENT ON FUNCTION cerebro.cerebro_extend(bigint, text, double precision, integer, integer) IS
'Goes on with a search that has ended, or stopped, with a larger budget: num_configs=10 in automl_params are ten trials more, num_iterations=20 or R=27 the epochs of each by now; max_epochs and max_configs are added to those of the search. Its output tables are replaced at the end. Returns the run_id.';

CREATE OR REPLACE FUNCTION cerebro.cerebro_replay(
    run_id             bigint,
    model_output_table text,
    name               text DEFAULT NULL,
    description        text DEFAULT NULL,
    num_workers        integer DEFAULT NULL)
RETURNS bigint LANGUAGE plpython3u AS {{ udf('cerebro_replay') }};
COMMENT ON FUNCTION cerebro.cerebro_replay(bigint, text, text, text, integer) IS
'Makes a run again with the same weights, into other tables: a search by its recorded decisions, a run whose workers did not wait for each other by the recorded order of its updates. Returns the run_id of the new run.';
