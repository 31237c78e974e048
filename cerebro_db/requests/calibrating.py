"""Probabilities of trained models: calibration, reliability, thresholds."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from cerebro_db.requests import declared as sql
from cerebro_db.requests.predicting import ScoringRequest


@sql.function(
    "cerebro_calibrate",
    "integer",
    entry="results.calibrate",
    job=sql.Job(reads=("model_table", "test_table")),
)
class CalibrateRequest(sql.Request):
    """Calibrates the probabilities of a registered model of classes on the rows of a table, and registers a version of
    the model whose probabilities are those. Returns the number of that version. method: temperature finds the number
    by which the logits are to be divided for the least log loss; isotonic a rising function of each probability.

    Attributes:
        model_table: a [registered model](../registry.md) of your own: `'model:plants@champion'`, of one target
            of classes
        test_table: as in `cerebro_evaluate`: rows that the model was not trained on
        dependent_varname, independent_varname, on_error: of raw rows, as in `cerebro_evaluate`
        description: of the new version
        use_gpus: as in `cerebro_fit_multiple`
        method: `'temperature'`, one number for all classes, or `'isotonic'`, steps for each class: for some
            thousand rows and more
    """

    model_table: sql.Text
    test_table: sql.Text
    dependent_varname: sql.Text = None
    independent_varname: sql.Text = None
    on_error: sql.OnError = "stop"
    description: sql.Description = None
    use_gpus: sql.Flag = False
    method: Literal["temperature", "isotonic"] = "temperature"


@sql.function(
    "cerebro_reliability",
    "void",
    entry="results.reliability",
    job=sql.Job(makes="output_table", reads=("model_table", "test_table")),
)
class ReliabilityRequest(ScoringRequest):
    """How reliable the probabilities of models are: for bins of their confidence how many rows there are and how many
    of these are right. Makes output_table with a row for each bin that has rows: mst_key, class_value, bin, lower,
    upper, num_rows, confidence, accuracy, calibration_error; of a registered model also model and version_id.

    Attributes:
        model_table: as in `cerebro_evaluate`, registered ones too; of one target of classes
        test_table: as in `cerebro_evaluate`; best of rows that the models were not trained on
        output_table: the table to be made
        use_gpus: as in `cerebro_fit_multiple`
        mst_key: one model; default all
        replace: as in `cerebro_pack`
        dependent_varname, independent_varname, on_error: of raw rows, as in `cerebro_evaluate`
        bins: how many bins of the same width there are between 0 and 1, 1 to 1000
        class_value: the class whose probability is the confidence; NULL for the most probable one of each row
    """

    bins: Annotated[int, Meta(ge=1, le=1000)] = 15
    class_value: sql.Text = None


Metric = Literal["accuracy", "balanced_accuracy", "f1", "mcc", "youden"] | None


@sql.function(
    "cerebro_threshold",
    "void",
    entry="results.threshold",
    job=sql.Job(makes="output_table", reads=("model_table", "test_table")),
)
class ThresholdRequest(ScoringRequest):
    """The probability from which on a row is best taken for a class, of models of two classes, by a metric or by what
    errors cost. Makes output_table with a row for each model: mst_key, class_value, threshold, metric, reached,
    true_positives, false_positives, false_negatives, true_negatives; of a registered model also model and version_id.

    Attributes:
        model_table: as in `cerebro_evaluate`, registered ones too; of one target of two classes
        test_table: as in `cerebro_evaluate`; best of rows that the models were not trained on
        output_table: the table to be made
        use_gpus: as in `cerebro_fit_multiple`
        mst_key: one model; default all
        replace: as in `cerebro_pack`
        dependent_varname, independent_varname, on_error: of raw rows, as in `cerebro_evaluate`
        metric: what is to be as large as it can be: `'f1'`, `'accuracy'`, `'balanced_accuracy'`, `'mcc'`
            (Matthews correlation) or `'youden'` (sensitivity and specificity less 1). By default `'f1'`; NULL
            where there are costs
        false_positive_cost, false_negative_cost: instead of a metric: what a row costs that is taken for the
            class and is none of it, and one of the class that is not; numbers from 0. The mean cost of a row
            is to be as small as it can be
        class_value: the class; NULL for the second one
    """

    metric: Metric = None
    false_positive_cost: sql.Number = None
    false_negative_cost: sql.Number = None
    class_value: sql.Text = None
