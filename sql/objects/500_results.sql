-- What trained models are used for: evaluation and prediction.

CREATE OR REPLACE FUNCTION cerebro._begin_prediction(task text, state bigint)
RETURNS bigint LANGUAGE plpython3u AS {{ plpython('return relay.trainer("scoring.begin_prediction", task, state)') }};
COMMENT ON FUNCTION cerebro._begin_prediction(text, bigint) IS
'Internal: loads a model from a joined state into this session and returns the token by which cerebro._predict_batch finds it.';

CREATE OR REPLACE FUNCTION cerebro._extend_prediction(token bigint, task text, state bigint)
RETURNS bigint LANGUAGE plpython3u AS {{ plpython('return relay.trainer("scoring.extend_prediction", token, task, state)') }};
COMMENT ON FUNCTION cerebro._extend_prediction(bigint, text, bigint) IS
'Internal: loads one more model from a joined state; predictions are the mean of those of all models of the token.';

CREATE OR REPLACE FUNCTION cerebro._predict_batch(
    token bigint, data bytea, count integer, known integer,
    OUT classes integer[], OUT numbers double precision[]
) LANGUAGE plpython3u AS {{ plpython('return relay.trainer("scoring.predict_batch", token, data, count, known)') }};
COMMENT ON FUNCTION cerebro._predict_batch(bigint, bytea, integer, integer) IS
'Internal: for the rows of a batch, one after another, the ids of their classes, the best first, and the probabilities of these; or the values of a float target. data: array_send() of every row, concatenated; count: rows; known: how many of them have an id.';

CREATE OR REPLACE FUNCTION cerebro._predict_buffer(
    token bigint, data bytea, count integer,
    OUT classes integer[], OUT numbers double precision[]
) LANGUAGE plpython3u AS {{ plpython('return relay.trainer("scoring.predict_buffer", token, data, count)') }};
COMMENT ON FUNCTION cerebro._predict_buffer(bigint, bytea, integer) IS
'Internal: the same as cerebro._predict_batch for rows of a packed table. data: float32, row by row; count: rows.';

CREATE OR REPLACE FUNCTION cerebro._predict_spread(
    kind integer, number integer, chunk integer, task text, data bytea, id text,
    OUT ids text[], OUT piece text, OUT rows integer, OUT classes integer[], OUT numbers double precision[]
) LANGUAGE plpython3u AS {{ udf('_predict_spread') }};
COMMENT ON FUNCTION cerebro._predict_spread(integer, integer, integer, text, bytea, text) IS
'Internal: the same where rows stay on their segments. A statement calls it with what makes the process a worker, with the chunks of models, with the rows, and with an end; whenever a batch is full it returns the predictions for the rows of the batch.';

{{ function('cerebro_evaluate') }}

{{ function('cerebro_confusion_matrix') }}

{{ function('cerebro_explain') }}

{{ function('cerebro_contributions') }}

{{ function('cerebro_dependence') }}

{{ function('cerebro_calibrate') }}
{{ function('cerebro_ensemble') }}

{{ function('cerebro_reliability') }}

{{ function('cerebro_threshold') }}

CREATE OR REPLACE FUNCTION cerebro._curves(model_table text, test_table text, mst_key integer)
RETURNS json LANGUAGE plpython3u AS {{ plpython('return relay.driver("results.curves", model_table, test_table, mst_key)') }};
COMMENT ON FUNCTION cerebro._curves(text, text, integer) IS
'Internal: of each target with classes the confusion matrix and the ROC curves of a model on a packed table, for reports.';

{{ function('cerebro_predict') }}

{{ function('cerebro_predict_folds') }}

{% for kind in ('double precision', 'bigint') %}
CREATE OR REPLACE FUNCTION cerebro._predict_row(
    model_table text,
    features {{ kind }}[],
    mst_key integer,
    is_whole boolean,
    OUT class_value text,
    OUT prob double precision,
    OUT estimated double precision[]
) LANGUAGE plpython3u STABLE AS {{ plpython('return relay.trainer("rows.predict_row", dict(model_table=model_table, features=features, mst_key=mst_key), is_whole)') }};
COMMENT ON FUNCTION cerebro._predict_row(text, {{ kind }}[], integer, boolean) IS
'Internal: cerebro_predict_row, once the number of its features is known to be one that a model may have. is_whole: whether they are of a type, or of values, that are whole numbers only.';

{% endfor %}
-- PL/Python makes a list of an array, of five times its size, before any code of its function runs: so this looks first. It
-- has the search path of its caller, in which the model is named.
{% for head, types, comment in variants('cerebro_predict_row') %}
{{ head }} LANGUAGE plpgsql STABLE AS $$
BEGIN
{% if types[1] == 'text' %}
    SELECT p.class_value, p.prob, p.estimated INTO class_value, prob, estimated
      FROM cerebro.cerebro_predict_row($1, $2::numeric[], $3) p;
{% else %}
    IF pg_catalog.cardinality($2) OPERATOR(pg_catalog.>) 16777216 THEN
        RAISE EXCEPTION USING ERRCODE = '22023',
            MESSAGE = pg_catalog.format('features: got %s numbers; allowed: up to 16777216', pg_catalog.cardinality($2)),
            HINT = 'give the array of one row of the model';
    END IF;
    SELECT p.class_value, p.prob, p.estimated INTO class_value, prob, estimated
{% if types[1] in ('smallint[]', 'integer[]', 'bigint[]') %}
      FROM cerebro._predict_row($1, $2::bigint[], $3, true) p;
{% elif types[1] == 'numeric[]' %}
      FROM cerebro._predict_row($1, $2::double precision[], $3, NOT EXISTS (
           SELECT 1 FROM pg_catalog.unnest($2) v WHERE v OPERATOR(pg_catalog.<>) pg_catalog.trunc(v))) p;
{% else %}
      FROM cerebro._predict_row($1, $2::double precision[], $3, false) p;
{% endif %}
{% endif %}
END
$$;
{{ comment }}

{% endfor %}
{{ function('cerebro_predict_outputs') }}

{{ function('cerebro_predict_byom') }}

{{ function('cerebro_drop_outputs') }}
