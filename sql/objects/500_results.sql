-- What trained models are used for: evaluation and prediction.

CREATE OR REPLACE FUNCTION cerebro._begin_prediction(task text, state bigint)
RETURNS bigint LANGUAGE plpython3u AS {{ udf('_begin_prediction') }};
COMMENT ON FUNCTION cerebro._begin_prediction(text, bigint) IS
'Internal: loads a model from a joined state into this session and returns the token by which cerebro._predict_batch finds it.';

CREATE OR REPLACE FUNCTION cerebro._extend_prediction(token bigint, task text, state bigint)
RETURNS bigint LANGUAGE plpython3u AS {{ udf('_extend_prediction') }};
COMMENT ON FUNCTION cerebro._extend_prediction(bigint, text, bigint) IS
'Internal: loads one more model from a joined state; predictions are the mean of those of all models of the token.';

CREATE OR REPLACE FUNCTION cerebro._predict_batch(
    token bigint, data bytea, count integer, known integer,
    OUT classes integer[], OUT numbers double precision[]
) LANGUAGE plpython3u AS {{ udf('_predict_batch') }};
COMMENT ON FUNCTION cerebro._predict_batch(bigint, bytea, integer, integer) IS
'Internal: for the rows of a batch, one after another, the ids of their classes, the best first, and the probabilities of these; or the values of a float target. data: array_send() of every row, concatenated; count: rows; known: how many of them have an id.';

CREATE OR REPLACE FUNCTION cerebro._predict_buffer(
    token bigint, data bytea, count integer,
    OUT classes integer[], OUT numbers double precision[]
) LANGUAGE plpython3u AS {{ udf('_predict_buffer') }};
COMMENT ON FUNCTION cerebro._predict_buffer(bigint, bytea, integer) IS
'Internal: the same as cerebro._predict_batch for rows of a packed table. data: float32, row by row; count: rows.';

CREATE OR REPLACE FUNCTION cerebro._predict_spread(
    kind integer, number integer, chunk integer, task text, data bytea, id text,
    OUT ids text[], OUT piece text, OUT rows integer, OUT classes integer[], OUT numbers double precision[]
) LANGUAGE plpython3u AS {{ udf('_predict_spread') }};
COMMENT ON FUNCTION cerebro._predict_spread(integer, integer, integer, text, bytea, text) IS
'Internal: the same where rows stay on their segments. A statement calls it with what makes the process a worker, with the chunks of models, with the rows, and with an end; whenever a batch is full it returns the predictions for the rows of the batch.';

CREATE OR REPLACE FUNCTION cerebro.cerebro_evaluate(
    model_table text,
    test_table text,
    output_table text,
    use_gpus boolean DEFAULT false,
    mst_key integer DEFAULT NULL,
    replace boolean DEFAULT false,
    dependent_varname text DEFAULT NULL,
    independent_varname text DEFAULT NULL,
    on_error text DEFAULT 'stop'
) RETURNS void LANGUAGE plpython3u AS {{ udf('cerebro_evaluate') }};
COMMENT ON FUNCTION cerebro.cerebro_evaluate(
    text, text, text, boolean, integer, boolean, text, text, text) IS
'Loss and metrics of the models of cerebro_fit_multiple on a packed table or on raw rows, which are packed as the models need them. Makes output_table with a row for each model, or for the one of mst_key: loss, metric (the first one), metrics_type, loss_type, mst_key, metrics; of a registered model also model and version_id. dependent_varname, independent_varname: of raw rows, by default the columns of the models; on_error: of images, as in cerebro_predict.';

CREATE OR REPLACE FUNCTION cerebro.cerebro_confusion_matrix(
    model_table text,
    test_table text,
    output_table text,
    use_gpus boolean DEFAULT false,
    mst_key integer DEFAULT NULL,
    replace boolean DEFAULT false,
    dependent_varname text DEFAULT NULL,
    independent_varname text DEFAULT NULL,
    on_error text DEFAULT 'stop'
) RETURNS void LANGUAGE plpython3u AS {{ udf('cerebro_confusion_matrix') }};
COMMENT ON FUNCTION cerebro.cerebro_confusion_matrix(
    text, text, text, boolean, integer, boolean, text, text, text) IS
'How many rows of each class the models of cerebro_fit_multiple take for which class, on a packed table or on raw rows, which are packed as the models need them. Makes output_table with mst_key, actual, predicted and num_rows, for the pairs that occur; of a registered model also model and version_id.';

CREATE OR REPLACE FUNCTION cerebro._curves(model_table text, test_table text, mst_key integer)
RETURNS json LANGUAGE plpython3u AS {{ udf('_curves') }};
COMMENT ON FUNCTION cerebro._curves(text, text, integer) IS
'Internal: of each target with classes the confusion matrix and the ROC curves of a model on a packed table, for reports.';

CREATE OR REPLACE FUNCTION cerebro.cerebro_predict(
    model_table text,
    test_table text,
    id_col text,
    independent_varname text,
    output_table text,
    pred_type text DEFAULT 'prob',
    use_gpus boolean DEFAULT false,
    mst_key integer DEFAULT NULL,
    num_workers integer DEFAULT NULL,
    ensemble integer DEFAULT NULL,
    replace boolean DEFAULT false,
    on_error text DEFAULT 'stop',
    wait boolean DEFAULT true,
    priority integer DEFAULT 0
) RETURNS bigint LANGUAGE plpython3u AS {{ udf('cerebro_predict') }};
COMMENT ON FUNCTION cerebro.cerebro_predict(
    text, text, text, text, text, text, boolean, integer, integer, integer, boolean, text, boolean, integer) IS
'Predictions of a model of cerebro_fit_multiple for the rows of a table; the normalizing constant of the training is applied. Makes output_table with the id, class_name, class_value, prob and rank. A packed table has no id: id_col and independent_varname are NULL, and the rows are named by partition_key, buffer_id and row_number. pred_type: prob for all classes, response for the best one, a whole number for that many, a number between 0 and 1 for those of a higher probability. For float targets only response, and output_table has the id, class_name and estimated. mst_key may be left out where the table has one model; ensemble: the mean of so many of the best models instead. num_workers: sessions that predict, which does not show in the results. on_error: as in cerebro_pack_images, of images. wait := false: checks its arguments, returns the job_id at once, and predicts without the session, as a job with that priority (see cerebro.jobs); otherwise it returns NULL.';

-- Numbers as numbers; has no default for pred_type, so that a call without it is not ambiguous.
CREATE OR REPLACE FUNCTION cerebro.cerebro_predict(
    model_table text,
    test_table text,
    id_col text,
    independent_varname text,
    output_table text,
    pred_type double precision,
    use_gpus boolean DEFAULT false,
    mst_key integer DEFAULT NULL,
    num_workers integer DEFAULT NULL,
    ensemble integer DEFAULT NULL,
    replace boolean DEFAULT false,
    on_error text DEFAULT 'stop',
    wait boolean DEFAULT true,
    priority integer DEFAULT 0
) RETURNS bigint LANGUAGE plpython3u AS {{ udf('cerebro_predict') }};
COMMENT ON FUNCTION cerebro.cerebro_predict(
    text, text, text, text, text, double precision, boolean, integer, integer, integer, boolean,
    text, boolean, integer) IS
'The same with a number for pred_type: so many of the best classes, or those of a higher probability.';

CREATE OR REPLACE FUNCTION cerebro._predict_row(
    model_table text,
    features double precision[],
    mst_key integer,
    OUT class_value text,
    OUT prob double precision,
    OUT estimated double precision[]
) LANGUAGE plpython3u STABLE AS {{ udf('cerebro_predict_row') }};
COMMENT ON FUNCTION cerebro._predict_row(text, double precision[], integer) IS
'Internal: cerebro_predict_row, once the number of its features is known to be one that a model may have.';

-- PL/Python makes a list of an array, of five times its size, before any code of its function runs: so this looks first. It
-- has the search path of its caller, in which the model is named.
CREATE OR REPLACE FUNCTION cerebro.cerebro_predict_row(
    model_table text,
    features double precision[],
    mst_key integer DEFAULT NULL,
    OUT class_value text,
    OUT prob double precision,
    OUT estimated double precision[]
) LANGUAGE plpgsql STABLE AS $$
BEGIN
    IF pg_catalog.cardinality($2) OPERATOR(pg_catalog.>) 16777216 THEN
        RAISE EXCEPTION USING ERRCODE = '22023',
            MESSAGE = pg_catalog.format('features: got %s numbers; allowed: up to 16777216', pg_catalog.cardinality($2)),
            HINT = 'give the array of one row of the model';
    END IF;
    SELECT p.class_value, p.prob, p.estimated INTO class_value, prob, estimated
      FROM cerebro._predict_row($1, $2, $3) p;
END
$$;
COMMENT ON FUNCTION cerebro.cerebro_predict_row(text, double precision[], integer) IS
'Prediction of a model of cerebro_fit_multiple for one row, for use in queries and triggers. Runs in the caller''s transaction; a trainer beside the session keeps the model. Returns the most probable class with its probability, and the probabilities of all classes in their order; for float targets the values. NULL features give NULL. mst_key may be left out where the table has one model. A registered model, such as model:digits@champion, is looked up at every call.';

CREATE OR REPLACE FUNCTION cerebro.cerebro_predict_outputs(
    model_table text,
    features json,
    mst_key integer DEFAULT NULL,
    OUT class_name text,
    OUT class_value text,
    OUT prob double precision,
    OUT estimated double precision[]
) RETURNS SETOF record LANGUAGE plpython3u STABLE AS {{ udf('cerebro_predict_outputs') }};
COMMENT ON FUNCTION cerebro.cerebro_predict_outputs(text, json, integer) IS
'The same as cerebro_predict_row for models of several inputs and outputs. features: a JSON array with the array of each input, in their order. Returns a row for each output: its name, and what cerebro_predict_row returns.';

CREATE OR REPLACE FUNCTION cerebro.cerebro_predict_byom(
    model_arch_table text,
    model_id integer,
    test_table text,
    id_col text,
    independent_varname text,
    output_table text,
    pred_type text DEFAULT 'prob',
    use_gpus boolean DEFAULT false,
    class_values text[] DEFAULT NULL,
    normalizing_const double precision DEFAULT 1.0,
    dependent_count integer DEFAULT 1,
    num_workers integer DEFAULT NULL,
    replace boolean DEFAULT false,
    from_logits boolean DEFAULT false
) RETURNS void LANGUAGE plpython3u AS {{ udf('cerebro_predict_byom') }};
COMMENT ON FUNCTION cerebro.cerebro_predict_byom(
    text, integer, text, text, text, text, text, boolean, text[], double precision, integer, integer, boolean, boolean) IS
'Predictions of a model that was trained elsewhere, with the weights that an architecture table has of it, for the rows of a table. Makes the same output_table as cerebro_predict; the target is called dependent_var. class_values: in the order of the outputs, default 0, 1, and so on; a model of one output has two of them, or, with pred_type response, none: its outputs are numbers then. normalizing_const: features are divided by it. from_logits: the outputs are logits, which become probabilities; outputs that are no probabilities are refused otherwise, unless pred_type is response.';

CREATE OR REPLACE FUNCTION cerebro.cerebro_predict_byom(
    model_arch_table text,
    model_id integer,
    test_table text,
    id_col text,
    independent_varname text,
    output_table text,
    pred_type double precision,
    use_gpus boolean DEFAULT false,
    class_values text[] DEFAULT NULL,
    normalizing_const double precision DEFAULT 1.0,
    dependent_count integer DEFAULT 1,
    num_workers integer DEFAULT NULL,
    replace boolean DEFAULT false,
    from_logits boolean DEFAULT false
) RETURNS void LANGUAGE plpython3u AS {{ udf('cerebro_predict_byom') }};
COMMENT ON FUNCTION cerebro.cerebro_predict_byom(
    text, integer, text, text, text, text, double precision, boolean, text[], double precision, integer, integer, boolean, boolean) IS
'The same with a number for pred_type: so many of the best classes, or those of a higher probability.';

CREATE OR REPLACE FUNCTION cerebro.cerebro_drop_outputs(output_table text)
RETURNS SETOF text LANGUAGE plpython3u AS {{ udf('cerebro_drop_outputs') }};
COMMENT ON FUNCTION cerebro.cerebro_drop_outputs(text) IS
'Drops a table that Cerebro-DB made and those beside it, such as <output_table>_summary, in the transaction of the caller; returns their names. Refuses tables of others, and those that Cerebro-DB did not make.';
