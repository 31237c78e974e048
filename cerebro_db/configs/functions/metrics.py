"""The metrics of Keras 3.15 that may be used: declared with their arguments and targets, and parsed."""

from __future__ import annotations

import re
from contextlib import nullcontext
from typing import Any, ClassVar

from cerebro_db.configs.arguments import (
    FLOAT,
    FLOATS,
    INTS,
    SCALAR,
    TEXT,
    Argument,
    Declaration,
    Declarations,
    Named,
    Target,
    choice,
    flag,
    number,
    whole,
)
from cerebro_db.configs.grammar import Call, call_of
from cerebro_db.configs.messages import shown
from cerebro_db.configs.names import bare_name, is_custom, parse_custom
from cerebro_db.errors import InvalidArgument, hinted

_NAME = Argument("name", TEXT, optional=True)
_AXIS = whole("axis", -1, low=None)
_LOGITS = flag("from_logits", False)
_SMOOTHING = number("label_smoothing", 0.0, high=1.0)
_THRESHOLDS = Argument("thresholds", FLOATS, None, 0.0, 1.0, optional=True)
_CLASS_ID = whole("class_id", None)
_TOP_K = whole("top_k", None, low=1)
_NUM_THRESHOLDS = whole("num_thresholds", 200, low=2, high=100_000)
_K = whole("k", 5, low=1)
POSITIVE_CLASS, AVERAGE = "positive_class", "average"
_POSITIVE = Argument(POSITIVE_CLASS, SCALAR, optional=True)
_MICRO = choice(AVERAGE, None, "micro")
_AVERAGE = choice(AVERAGE, None, "micro", "macro", "weighted")
_THRESHOLD = number("threshold", None, high=1.0, low_open=True)
# A matrix of so many rows and columns is made for it.
_NUM_CLASSES = whole("num_classes", None, low=2, high=4096, required=True)
_CLASS_IDS = Argument("target_class_ids", INTS, low=0, required=True)
_IGNORE = whole("ignore_class", None, low=None)
_SPARSE_PREDICTION = flag("sparse_y_pred", True)


def _share(name: str) -> Argument:
    return Argument(name, FLOAT, None, 0.0, 1.0, required=True)


def _metric(name: str, names: str, target: Target, *own: Argument) -> Declaration:
    return Declaration(name, (*own, _NAME), names=tuple(names.split()), target=target)


_BINARY, _FLOAT, _IDS, _ONEHOT = Target.BINARY, Target.FLOAT, Target.IDS, Target.ONEHOT

_MEANS = (
    _metric("accuracy", "accuracy acc", Target.LOSS),
    _metric("BinaryAccuracy", "binary_accuracy", _BINARY, number("threshold", 0.5, high=1.0)),
    _metric("BinaryCrossentropy", "binary_crossentropy bce", _BINARY, _LOGITS, _SMOOTHING),
    _metric("CategoricalAccuracy", "categorical_accuracy", _ONEHOT),
    _metric(
        "CategoricalCrossentropy", "categorical_crossentropy", _ONEHOT, _LOGITS, _SMOOTHING, _AXIS
    ),
    _metric("CategoricalHinge", "categorical_hinge", _ONEHOT),
    _metric("SparseCategoricalAccuracy", "sparse_categorical_accuracy", _IDS),
    _metric(
        "SparseCategoricalCrossentropy", "sparse_categorical_crossentropy", _IDS,
        _LOGITS, _IGNORE, _AXIS,
    ),
    _metric(
        "SparseTopKCategoricalAccuracy", "sparse_top_k_categorical_accuracy", _IDS, _K,
        flag("from_sorted_ids", False),
    ),
    _metric("TopKCategoricalAccuracy", "top_k_categorical_accuracy", _ONEHOT, _K),
    _metric("Hinge", "hinge", _BINARY),
    _metric("SquaredHinge", "squared_hinge", _BINARY),
    _metric("KLDivergence", "kl_divergence kld kullback_leibler_divergence", _ONEHOT),
    _metric("Poisson", "poisson", _FLOAT),
    _metric("MeanAbsoluteError", "mean_absolute_error mae", _FLOAT),
    _metric("MeanAbsolutePercentageError", "mean_absolute_percentage_error mape", _FLOAT),
    _metric("MeanSquaredError", "mean_squared_error mse", _FLOAT),
    _metric("MeanSquaredLogarithmicError", "mean_squared_logarithmic_error msle", _FLOAT),
    _metric("RootMeanSquaredError", "root_mean_squared_error rmse", _FLOAT),
    _metric("LogCoshError", "logcosh log_cosh log_cosh_error", _FLOAT),
    _metric("CosineSimilarity", "cosine_similarity", _FLOAT, _AXIS),
    _metric("PearsonCorrelation", "pearson_correlation", _FLOAT, _AXIS),
    _metric("ConcordanceCorrelation", "concordance_correlation", _FLOAT, _AXIS),
    _metric(
        "R2Score", "r2_score", _FLOAT,
        choice("class_aggregation", "uniform_average", "uniform_average",
               "variance_weighted_average"),
        whole("num_regressors", 0),
    ),
)  # fmt: skip

_COUNTS = (
    _metric(
        "AUC", "auc", _BINARY, _NUM_THRESHOLDS,
        choice("curve", "ROC", "ROC", "PR"),
        choice("summation_method", "interpolation", "interpolation", "minoring", "majoring"),
        _THRESHOLDS, flag("multi_label", False), whole("num_labels", None, low=1, high=1000),
        Argument("label_weights", FLOATS, None, 0.0, optional=True), _LOGITS,
        _POSITIVE, _AVERAGE,
    ),
    _metric("FalseNegatives", "false_negatives", _BINARY, _THRESHOLDS, _POSITIVE, _MICRO),
    _metric("FalsePositives", "false_positives", _BINARY, _THRESHOLDS, _POSITIVE, _MICRO),
    _metric("TrueNegatives", "true_negatives", _BINARY, _THRESHOLDS, _POSITIVE, _MICRO),
    _metric("TruePositives", "true_positives", _BINARY, _THRESHOLDS, _POSITIVE, _MICRO),
    _metric("Precision", "precision", _BINARY, _THRESHOLDS, _TOP_K, _CLASS_ID, _POSITIVE, _MICRO),
    _metric("Recall", "recall", _BINARY, _THRESHOLDS, _TOP_K, _CLASS_ID, _POSITIVE, _MICRO),
    _metric("PrecisionAtRecall", "precision_at_recall", _BINARY, _share("recall"),
            _NUM_THRESHOLDS, _CLASS_ID, _POSITIVE, _MICRO),
    _metric("RecallAtPrecision", "recall_at_precision", _BINARY, _share("precision"),
            _NUM_THRESHOLDS, _CLASS_ID, _POSITIVE, _MICRO),
    _metric("SensitivityAtSpecificity", "sensitivity_at_specificity", _BINARY,
            _share("specificity"), _NUM_THRESHOLDS, _CLASS_ID, _POSITIVE, _MICRO),
    _metric("SpecificityAtSensitivity", "specificity_at_sensitivity", _BINARY,
            _share("sensitivity"), _NUM_THRESHOLDS, _CLASS_ID, _POSITIVE, _MICRO),
    _metric("F1Score", "f1_score", _ONEHOT, _AVERAGE, _THRESHOLD, _POSITIVE),
    _metric("FBetaScore", "fbeta_score f_beta_score", _ONEHOT, _AVERAGE,
            number("beta", 1.0, low_open=True), _THRESHOLD, _POSITIVE),
    _metric("BinaryIoU", "binary_iou binary_io_u", _BINARY,
            Argument("target_class_ids", INTS, (0, 1), 0, 1),
            number("threshold", 0.5, high=1.0), _POSITIVE, _MICRO),
    _metric("IoU", "iou io_u", _IDS, _NUM_CLASSES, _CLASS_IDS, _IGNORE,
            flag("sparse_y_true", True), _SPARSE_PREDICTION, _AXIS),
    _metric("MeanIoU", "mean_iou mean_io_u", _IDS, _NUM_CLASSES, _IGNORE,
            flag("sparse_y_true", True), _SPARSE_PREDICTION, _AXIS),
    _metric("OneHotIoU", "one_hot_iou one_hot_io_u", _ONEHOT, _NUM_CLASSES, _CLASS_IDS, _IGNORE,
            flag("sparse_y_pred", False), _AXIS),
    _metric("OneHotMeanIoU", "one_hot_mean_iou one_hot_mean_io_u", _ONEHOT, _NUM_CLASSES, _IGNORE,
            flag("sparse_y_pred", False), _AXIS),
)  # fmt: skip

# Variables of each, summed over partitions, are those of all rows. `accuracy` stands for what `accuracy_class` chooses.
METRICS = Declarations(
    "metrics",
    "metric",
    (*_MEANS, *_COUNTS),
    {
        "Mean": "it does not compare predictions with targets",
        "Sum": "it does not compare predictions with targets",
        "MeanMetricWrapper": "it needs a function",
        "Metric": "it is the abstract base class",
    },
)

# Of two classes they are those of the positive one.
OF_POSITIVE = frozenset(
    metric.name
    for metric in METRICS.values()
    if any(a.name == POSITIVE_CLASS for a in metric.arguments)
)

# They take outputs for probabilities. Others look for the largest output, or compare numbers.
OF_PROBABILITIES = (
    frozenset(
        name
        for name, metric in METRICS.items()
        if any(a.name == "from_logits" for a in metric.arguments)
    )
    | OF_POSITIVE
    | {"BinaryAccuracy", "KLDivergence"}
)


def accuracy_class(loss_target: Target, output_width: int) -> str:
    """The class that `accuracy` stands for, by the rule of Keras.

    Args:
        loss_target: what the loss wants.
        output_width: last dimension of the model's output.
    """
    if output_width == 1:
        return "BinaryAccuracy"
    return "SparseCategoricalAccuracy" if loss_target is Target.IDS else "CategoricalAccuracy"


MAX_LABEL = 63
MAX_METRICS = 100
TOP_K = re.compile(r"top_([1-9][0-9]{0,8})_accuracy")
_TOP_K_HINT = "top_<k>_accuracy has a number from 1 in it, such as top_3_accuracy"


class MetricSpec(Named, frozen=True):
    """A metric: its class in Keras (or `accuracy`), arguments without `name`, and its label."""

    declared: ClassVar = METRICS

    label: str = ""

    @property
    def target(self) -> Target:
        """Form in which the metric wants the target of a row."""
        return Target.FLOAT if is_custom(self.name) else METRICS[self.name].target

    def all_arguments(self) -> dict[str, Any]:
        """Every argument with its value, defaults included; `name` is the label."""
        return {**super().all_arguments(), "name": self.label}


def parse_metrics(value: object, what: str = "metrics") -> tuple[MetricSpec, ...]:
    """Parse a list of metrics; every label is made unique by a number."""
    if value is None:
        return ()
    if isinstance(value, str | Call):
        value = [value]
    if not isinstance(value, list | tuple):
        raise InvalidArgument(f"{what}: got metrics={shown(value)}; it must be a list of names")
    if len(value) > MAX_METRICS:
        raise InvalidArgument(
            f"{what}: got {len(value)} metrics; at most {MAX_METRICS} are allowed"
        )
    metrics: list[MetricSpec] = []
    for element in value:
        metric = parse_metric(element, what)
        if any((m.name, m.arguments) == (metric.name, metric.arguments) for m in metrics):
            raise InvalidArgument(
                f"{what}: got the metric {metric.label!r} twice",
                "A list for each output may repeat it: [['mae'], ['mae']].",
            )
        label = _free_label(metric.label, {m.label for m in metrics})
        metrics.append(MetricSpec(metric.name, metric.arguments, label))
    return tuple(metrics)


def parse_metric(value: object, what: str = "metrics") -> MetricSpec:
    """Parse ``'acc'``, ``"AUC(curve='PR', name='pr')"`` or the same without quotes."""
    call = _top_k(call_of(value, "metric", what))
    if is_custom(call.name):
        return MetricSpec(parse_custom(call, what), (), bare_name(call.name))
    with hinted(_TOP_K_HINT) if call.name.startswith("top_") else nullcontext():
        found = METRICS.find(call.name, what)
    what = f"{what}: {found.name}"
    arguments = dict(found.validated(call, what))
    label = arguments.pop("name", found.names[0])
    if not label or len(label) > MAX_LABEL or label == "loss":
        raise InvalidArgument(
            f"{what}: got name={shown(label)}; it must have 1 to {MAX_LABEL} characters, and 'loss' "
            "is taken"
        )
    return MetricSpec(found.name, tuple(arguments.items()), label)


def _top_k(call: Call) -> Call:
    """Keras' form of MADlib's ``top_3_accuracy``; it may have any number."""
    found = TOP_K.fullmatch(call.name)
    if not found or call.arguments or call.values:
        return call
    return Call("TopKCategoricalAccuracy", (("k", int(found[1])), ("name", call.name)))


def _free_label(label: str, taken: set[str]) -> str:
    candidate, count = label, 0
    while candidate in taken:
        count += 1
        candidate = f"{label}_{count}"
    return candidate
