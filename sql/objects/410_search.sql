-- Searches: the best model of a space of architectures and parameters.

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
