"""Scores and predictions of trained models."""

from __future__ import annotations

from cerebro_db.requests import declared as sql


class ScoringRequest(sql.Request):
    """A request to score models on a packed table or on raw rows."""

    model_table: sql.Text
    test_table: sql.Text
    output_table: sql.Text
    use_gpus: sql.Flag = False
    mst_key: sql.Integer = None
    replace: sql.Flag = False
    dependent_varname: sql.Text = None
    independent_varname: sql.Text = None
    on_error: sql.OnError = "stop"


@sql.function(
    "cerebro_evaluate",
    "void",
    entry="results.evaluate",
    job=sql.Job(makes="output_table", reads=("model_table", "test_table")),
)
class EvaluationRequest(ScoringRequest):
    """Loss and metrics of the models of cerebro_fit_multiple on a packed table or on raw rows, which are packed as
    the models need them. Makes output_table with a row for each model, or for the one of mst_key: loss, metric
    (the first one), metrics_type, loss_type, mst_key, metrics; of a registered model also model and version_id.
    dependent_varname, independent_varname: of raw rows, by default the columns of the models; on_error: of
    images, as in cerebro_predict.

    Attributes:
        model_table: a table that `cerebro_fit_multiple` made, with `_info`, `_summary` and `_states` beside
            it, or a [registered model](../registry.md): `'model:plants'`
        test_table: a packed table with the same shape of rows, classes and normalizing constant: best made by
            `cerebro_pack_validation`; or raw rows: a table or view with a row for each example
        output_table: the table to be made
        use_gpus: as in `cerebro_fit_multiple`
        mst_key: one model; default all. For a registered model it is left out
        replace: as in `cerebro_pack`
        dependent_varname: of raw rows: the column of the target, several separated by commas; default: those
            that the models were trained on. For a packed table it is left out
        independent_varname: of raw rows: the column of the features, as in `cerebro_predict`; default: those
            that the models were trained on. For a packed table it is left out
        on_error: of images of raw rows: as in [`cerebro_pack_images`](packing.md#damaged-images)
    """


@sql.function(
    "cerebro_confusion_matrix",
    "void",
    entry="results.confusion_matrix",
    job=sql.Job(makes="output_table", reads=("model_table", "test_table")),
)
class ConfusionRequest(ScoringRequest):
    """How many rows of each class the models of cerebro_fit_multiple take for which class, on a packed table or on
    raw rows, which are packed as the models need them. Makes output_table with mst_key, actual, predicted and
    num_rows, for the pairs that occur; of a registered model also model and version_id.

    Attributes:
        model_table: as in `cerebro_evaluate`, registered ones too; for a target of classes
        test_table: as in `cerebro_evaluate`
        output_table: the table to be made
        use_gpus: as in `cerebro_fit_multiple`
        mst_key: one model; default all
        replace: as in `cerebro_pack`
        dependent_varname, independent_varname, on_error: of raw rows, as in `cerebro_evaluate`
    """


@sql.function(
    "cerebro_predict",
    "bigint",
    entry="results.predict",
    job=sql.Job(makes="output_table", reads=("model_table", "test_table"), steps="predict"),
    overloads=(
        sql.Overload(
            "pred_type",
            "double precision",
            "The same with a number for pred_type: so many of the best classes, or those of a higher probability.",
        ),
    ),
)
class PredictionRequest(sql.Request):
    """Predictions of a model of cerebro_fit_multiple for the rows of a table; the normalizing constant of the
    training is applied. Makes output_table with the id, class_name, class_value, prob and rank. A packed table
    has no id: id_col and independent_varname are NULL, and the rows are named by partition_key, buffer_id and
    row_number. pred_type: prob for all classes, response for the best one, a whole number for that many, a
    number between 0 and 1 for those of a higher probability. For float targets only response, and output_table
    has the id, class_name and estimated. mst_key may be left out where the table has one model; ensemble: the
    mean of so many of the best models instead. num_workers: sessions that predict, which does not show in the
    results. on_error: as in cerebro_pack_images, of images. wait := false: checks its arguments, returns the
    job_id at once, and predicts without the session, as a job with that priority (see cerebro.jobs); otherwise
    it returns NULL.

    Attributes:
        model_table: a table that `cerebro_fit_multiple` made, with `_info`, `_summary` and `_states` beside
            it, or a [registered model](../registry.md): `'model:plants@champion'`
        test_table: a table or view with a row for each example; or a packed table with the same shape of rows
            and normalizing constant, best made by `cerebro_pack_validation`
        id_col: the column that names a row, or several separated by commas: `'shelf, box'`; any type but an
            array, no NULLs. Not `class_name`, `class_value`, `prob`, `rank` or `estimated`. NULL for a packed
            table. A NOTICE tells how many rows share an id. Where nothing names a row, a view can have
            `row_number() OVER ()`
        independent_varname: the column of features, of the shape that the model was trained on, or as many
            columns, separated by commas, as the model has inputs; may be NULL for a packed table. For models
            trained on a table of `cerebro_pack_columns` NULL, `'*'` or the recorded columns, to which the
            recorded encoding is applied; after `cerebro_pack_images` a column of images, NULL for the
            recorded one
        output_table: the table to be made
        pred_type: for classes: `'prob'` all classes; `'response'` the best one; a whole number from 1, so
            many of the best; a number between 0 and 1, those of a higher probability. For float targets
            `'response'`, which must be given
        use_gpus: as in `cerebro_fit_multiple`
        mst_key: the model; may be left out where the table has one, and for a registered model
        num_workers: sessions that predict, 1 to 256. By default those that have TensorFlow already, at least
            one; all cores where the table is large enough to repay their start. Results are the same to the
            bit for any number. Where free connections or `max_workers` are enough for fewer, so many work,
            and a NOTICE says why. A table that is neither plain nor packed (a view, a partitioned or a
            foreign table) is read by one. On Greenplum it has no effect: each segment predicts the rows that
            it has, and rows of a view are spread first, so that last bits may differ from call to call
        ensemble: instead of `mst_key`: the mean of the probabilities, or values, of so many of the best
            models, by the rule of `cerebro.leaderboard`
        replace: as in `cerebro_pack`
        on_error: of images that cannot be read: as in [`cerebro_pack_images`](packing.md#damaged-images)
        wait, priority: `wait := false`: the call checks its arguments, returns the job_id at once (otherwise
            NULL), and the table is made without the session as a [job](jobs.md#jobs) of that priority, -100
            to 100, above 0 for administrators
    """

    model_table: sql.Text
    test_table: sql.Text
    id_col: sql.Text
    independent_varname: sql.Text
    output_table: sql.Text
    pred_type: sql.Text = "prob"
    use_gpus: sql.Flag = False
    mst_key: sql.Integer = None
    num_workers: sql.Workers = None
    ensemble: sql.Integer = None
    replace: sql.Flag = False
    on_error: sql.OnError = "stop"
    wait: sql.Flag = True
    priority: sql.Priority = 0


@sql.function(
    "cerebro_predict_folds",
    "void",
    entry="results.predict_folds",
    job=sql.Job(makes="output_table", reads=("model_table",)),
)
class FoldPredictionRequest(sql.Request):
    """Predictions out of fold of a run with folds: of each row of its packed table by the model that has not seen
    it. Makes output_table as cerebro_predict does for a packed table.

    Attributes:
        model_table: a table that `cerebro_fit_multiple` made with `folds`, whose packed table is as it was
        output_table: the table to be made
        pred_type: as in `cerebro_predict`
        mst_key: a configuration of the model selection table, which has a model of each fold; may be left out
            where there is one
        use_gpus: as in `cerebro_fit_multiple`
        num_workers: as in `cerebro_predict`
        replace: as in `cerebro_pack`
    """

    model_table: sql.Text
    output_table: sql.Text
    pred_type: sql.Text = "prob"
    mst_key: sql.Integer = None
    use_gpus: sql.Flag = False
    num_workers: sql.Workers = None
    replace: sql.Flag = False


# Whole numbers stay such, so that none becomes another one as float32; a literal is of no type yet.
_OTHER_NUMBERS = ("smallint[]", "integer[]", "bigint[]", "numeric[]", "real[]")


@sql.function(
    "cerebro_predict_row",
    "",
    out="class_value text, prob double precision, estimated double precision[]",
    job=sql.READS,
    overloads=(
        *(sql.Overload("features", kind, f"The same with {kind}.") for kind in _OTHER_NUMBERS),
        sql.Overload("features", "text", "The same with the text of an array, such as '{1, 0.5}'."),
    ),
)
class PredictRowRequest(sql.Request):
    """Prediction of a model of cerebro_fit_multiple for one row, for use in queries and triggers. Runs in the
    caller's transaction; a trainer beside the session keeps the model. Returns the most probable class with its
    probability, and the probabilities of all classes in their order; for float targets the values. NULL
    features are refused, as in a table. mst_key may be left out where the table has one model. A registered model, such as
    model:digits@champion, is looked up at every call.

    Attributes:
        model_table: a table that `cerebro_fit_multiple` made, with `_info`, `_summary` and `_states` beside
            it, or a [registered model](../registry.md): `'model:plants@champion'`
        features: of the shape that the model was trained on; an array of any numeric type, or the text of one. Of
            several inputs that are arrays of one dimension those of all, one after another. The normalizing
            constant of the training is applied. Whole numbers that
            [float32 does not hold](packing.md#numbers-as-float32) are refused
        mst_key: the model; may be left out where the table has one, and for a registered one
    """

    model_table: sql.Text
    features: sql.Numbers
    mst_key: sql.Integer = None


@sql.function(
    "cerebro_predict_outputs",
    "SETOF record",
    entry="rows.predict_outputs",
    by="trainer",
    volatility="STABLE",
    out="class_name text, class_value text, prob double precision, estimated double precision[]",
    job=sql.READS,
)
class PredictOutputsRequest(sql.Request):
    """The same as cerebro_predict_row for models of several inputs and outputs. features: a JSON array with the
    array of each input, in their order. Returns a row for each output: its name, and what cerebro_predict_row
    returns.

    Attributes:
        model_table: as in `cerebro_predict_row`
        features: a JSON array with the array of each input, in their order, such as
            `json_build_array(t.picture, ARRAY[t.minute])`. NULL gives no row. Where all numbers of an input
            are written as whole ones, they are refused as in `cerebro_predict_row`
        mst_key: as in `cerebro_predict_row`
    """

    model_table: sql.Text
    features: sql.Json
    mst_key: sql.Integer = None


@sql.function(
    "cerebro_predict_byom",
    "void",
    entry="results.predict_byom",
    job=sql.Job(makes="output_table", reads=("model_arch_table", "test_table")),
    overloads=(
        sql.Overload(
            "pred_type",
            "double precision",
            "The same with a number for pred_type: so many of the best classes, or those of a higher probability.",
        ),
    ),
)
class ByomRequest(sql.Request):
    """Predictions of a model that was trained elsewhere, with the weights that an architecture table has of it,
    for the rows of a table. Makes the same output_table as cerebro_predict; the target is called dependent_var.
    class_values: in the order of the outputs, default 0, 1, and so on; a model of one output has two of them,
    or, with pred_type response, none: its outputs are numbers then. normalizing_const: features are divided by
    it. from_logits: the outputs are logits, which become probabilities; outputs that are no probabilities are
    refused otherwise, unless pred_type is response.

    Attributes:
        model_arch_table: a table of architectures, as `cerebro_load_model` makes it
        model_id: a model in it that has `model_weights`
        test_table: as in `cerebro_predict`
        id_col: as in `cerebro_predict`
        independent_varname: as in `cerebro_predict`
        output_table: the table to be made
        pred_type: as in `cerebro_predict`
        use_gpus: as in `cerebro_fit_multiple`
        class_values: the classes in the order of the outputs, or a list of one such list; NULL among them is
            a class too. By default `0`, `1` and so on. A model of one output has two classes, of which it
            tells the probability of the second; without `class_values` its outputs are numbers, and
            `pred_type` must be `'response'`. Of several outputs a list for each, shorter ones filled up with
            NULLs; a list of NULLs stands for the default
        normalizing_const: the features are divided by it
        dependent_count: the number of outputs. The targets of several are called `dependent_var_0`,
            `dependent_var_1` and so on
        num_workers: as in `cerebro_predict`
        replace: as in `cerebro_pack`
        from_logits: whether the outputs for classes are logits: they become probabilities, by a softmax or,
            of one output, a sigmoid
    """

    model_arch_table: sql.Text
    model_id: sql.Integer
    test_table: sql.Text
    id_col: sql.Text
    independent_varname: sql.Text
    output_table: sql.Text
    pred_type: sql.Text = "prob"
    use_gpus: sql.Flag = False
    class_values: sql.Texts = None
    normalizing_const: sql.Number = 1.0
    dependent_count: sql.Integer = 1
    num_workers: sql.Workers = None
    replace: sql.Flag = False
    from_logits: sql.Flag = False
