"""Views of an output, as metrics take it: of two classes the positive one, or a column for each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from cerebro_db.configs.arguments import Target
from cerebro_db.configs.functions.losses import LossSpec
from cerebro_db.configs.functions.metrics import (
    AVERAGE,
    OF_POSITIVE,
    OF_PROBABILITIES,
    POSITIVE_CLASS,
    MetricSpec,
    accuracy_class,
)
from cerebro_db.configs.messages import shown
from cerebro_db.errors import InvalidArgument
from cerebro_db.training.scores.targets import TargetFacts, encoding_for

# Arguments by which a metric chooses columns itself.
_OWN_COLUMNS = (AVERAGE, "class_id", "top_k", "multi_label", "label_weights", "num_labels")
_TRUTHS = {"t": "true", "f": "false"}
_THRESHOLDS = ("threshold", "thresholds")
# Of a probability, where it is 0 for a logit.
_MIDDLE = 0.5


@dataclass(frozen=True)
class MetricView:
    """View of an output, as a metric takes it.

    Attributes:
        encoding: of the targets.
        positive: id of the class whose probability is the only column; None for all columns.
        pair: whether the one output is turned into columns for both classes.
        logits: whether outputs become probabilities first.
        binary_loss: whether each of them is a probability by itself.
    """

    encoding: str
    positive: int | None = None
    pair: bool = False
    logits: bool = False
    binary_loss: bool = False


def view_of(spec: MetricSpec, loss: LossSpec, facts: TargetFacts, units: int) -> MetricView:
    """View of one output for a metric.

    Args:
        spec: the metric.
        loss: of the output.
        facts: of its target.
        units: last dimension of the output.

    Raises:
        InvalidArgument: the output does not fit, or there is no such class.
    """
    of_two = facts.kind == "class" and facts.num_classes == 2 and units in (1, 2)
    given = spec.all_arguments()
    logits = bool(loss.all_arguments().get("from_logits") or given.get("from_logits"))
    binary = loss.compares_each
    positive = _positive(spec, given, facts, of_two)
    if of_two and is_of_positive(spec):
        return MetricView("binary", positive, False, logits, binary)
    if of_two and units == 1 and _wants_columns(spec, given):
        encoding = "ids" if spec.target is Target.IDS else "onehot"
        return MetricView(encoding, None, True, logits, binary)
    wanted = loss.target if spec.target is Target.LOSS else spec.target
    return MetricView(
        encoding_for(facts, wanted, units),
        logits=_become_probabilities(spec, loss, units),
        binary_loss=binary,
    )


def _become_probabilities(spec: MetricSpec, loss: LossSpec, units: int) -> bool:
    """True if the logits of a loss become probabilities for a metric that does not convert them itself."""
    given = spec.all_arguments()
    if (
        given.get("from_logits")
        or given.get("top_k")
        or not loss.all_arguments().get("from_logits")
    ):
        return False
    return _class_of(spec, loss, units) in OF_PROBABILITIES


def _class_of(spec: MetricSpec, loss: LossSpec, units: int) -> str:
    return accuracy_class(loss.target, units) if spec.name == "accuracy" else spec.name


def is_of_positive(spec: MetricSpec) -> bool:
    """True if a metric of two classes is that of the positive one."""
    given = spec.all_arguments()
    return spec.name in OF_POSITIVE and not _chosen(given)


def _chosen(given: dict[str, Any]) -> list[str]:
    """The arguments by which a metric chooses columns itself."""
    values = {name: given.get(name) for name in _OWN_COLUMNS}
    return [name for name, value in values.items() if value is not None and value is not False]


def arguments_for(spec: MetricSpec, view: MetricView, units: int) -> dict[str, Any]:
    """The arguments of Keras' metric: without those that the view has taken."""
    given = dict(spec.arguments)
    given.pop(POSITIVE_CLASS, None)
    if view.logits and spec.name != "AUC":
        given |= {name: _MIDDLE for name in _THRESHOLDS if _is_zero(given.get(name))}
    if spec.name in _F_SCORES:
        if view.positive is not None:  # the probable one of two classes
            given.setdefault("threshold", 0.5)
        return given
    average = given.pop(AVERAGE, None) if spec.name in OF_POSITIVE else None
    if average in ("macro", "weighted"):
        given |= {"multi_label": True, "num_labels": 2 if view.pair else units}
    if view.positive is not None or view.pair:
        given.pop("from_logits", None)
    if spec.name in _IOUS:  # targets are ids
        given.pop("sparse_y_true", None)
        if view.pair:
            given["sparse_y_pred"] = False
    return given


def _is_zero(threshold: object) -> bool:
    return threshold in (0, (0,))


_F_SCORES = ("F1Score", "FBetaScore")
_IOUS = ("IoU", "MeanIoU")


def _wants_columns(spec: MetricSpec, given: dict[str, Any]) -> bool:
    return spec.target in (Target.IDS, Target.ONEHOT) or given.get(AVERAGE) is not None


def _positive(spec: MetricSpec, given: dict[str, Any], facts: TargetFacts, of_two: bool) -> int:
    """The id of the positive class: the last one where none is named."""
    wanted = given.get(POSITIVE_CLASS)
    if wanted is None:
        return 1
    what = f"{spec.name}: got {POSITIVE_CLASS}={shown(wanted)}"
    if not of_two:
        raise InvalidArgument(
            f"{what} for a target of {_described(facts)}; allowed: for targets of two classes",
            hint="class_id of Precision and Recall chooses one of several classes by its place from 0",
        )
    if not is_of_positive(spec):
        raise InvalidArgument(f"{what} and {', '.join(_chosen(given))}; allowed: one of them")
    found = [place for place, value in enumerate(facts.values) if _is(wanted, value)]
    if len(found) != 1:
        raise InvalidArgument(
            f"{what}; allowed: {' or '.join(map(shown, facts.values))}, the class values",
            hint="the summary of the packed table has the class values",
        )
    return found[0]


def _is(wanted: object, value: str | None) -> bool:
    if value is None:
        return False
    if isinstance(wanted, bool):
        return _TRUTHS.get(value, value) == str(wanted).lower()
    if isinstance(wanted, float) and wanted.is_integer():
        wanted = int(wanted)
    return str(wanted) == value


def _described(facts: TargetFacts) -> str:
    return "numbers" if facts.kind == "float" else f"{facts.num_classes} classes"
