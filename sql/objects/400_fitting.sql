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
    num_workers               integer DEFAULT NULL)
RETURNS bigint LANGUAGE plpython3u AS {{ udf('cerebro_fit_multiple') }};
COMMENT ON FUNCTION cerebro.cerebro_fit_multiple(text, text, text, integer, boolean, text, integer, boolean, text, text, boolean, bigint, integer) IS
'Trains every configuration of a model selection table on a packed table by model hopper parallelism; returns the run_id and leaves the tables <model_output_table>, _info and _summary.';
