"""Values that callbacks may monitor: loss and metrics by the names of Keras, and the better direction."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from cerebro_db.configs.arguments import nearest
from cerebro_db.configs.custom import is_custom
from cerebro_db.configs.messages import shown
from cerebro_db.configs.metrics import METRICS
from cerebro_db.errors import InvalidArgument

__all__ = ["Monitor", "is_minimised", "monitor_of", "monitors_of"]

LOSS, OF_VALIDATION = "loss", "val_"
_MINIMISED = (
    "Crossentropy", "CrossEntropy", "Error", "Hinge", "Divergence", "LogCosh", "Poisson",
    "FalsePositives", "FalseNegatives",
)  # fmt: skip
# Keras does not say which way they are better.
_UNDECIDED = ("FalseNegatives", "FalsePositives", "TrueNegatives", "TruePositives")


@dataclass(frozen=True)
class Monitor:
    """A series of values, and whether more is better.

    Attributes:
        name: ``loss`` or the label of a metric, after ``val_`` where it is of the validation table.
    """

    name: str
    more_is_better: bool


def is_minimised(metric: str) -> bool:
    """True if less is better, of the class of a metric."""
    return any(part in metric for part in _MINIMISED)


def monitors_of(metrics: Iterable[tuple[str, str]], *, validated: bool) -> dict[str, str]:
    """Values that may be monitored: names in a callback, and what they stand for.

    Args:
        metrics: class and label of each.
        validated: whether there is a validation table.
    """
    labels = {LOSS: LOSS} | {label: label for _, label in metrics}
    for name, label in metrics:  # 'acc' is what Keras calls a metric that was asked for as 'acc'
        for other in METRICS[name].names if name in METRICS else ():
            labels.setdefault(other, label)
    of_validation = {OF_VALIDATION + name: OF_VALIDATION + to for name, to in labels.items()}
    return labels | of_validation if validated else labels


def monitor_of(
    name: str, mode: str, metrics: Mapping[str, str], *, validated: bool, what: str
) -> Monitor:
    """The monitor of a callback.

    Args:
        name, mode: its arguments.
        metrics: classes of the metrics by label.
        validated: whether there is a validation table.
        what: for messages.

    Raises:
        InvalidArgument: there is no such monitor, or which way is better cannot be told.
    """
    known = monitors_of([(kind, label) for label, kind in metrics.items()], validated=validated)
    if name not in known:
        raise _unknown(name, known, what, validated=validated)
    found = known[name]
    metric = metrics.get(found, metrics.get(found.removeprefix(OF_VALIDATION), LOSS))
    if mode == "auto" and (metric in _UNDECIDED or is_custom(metric)):
        raise InvalidArgument(
            f"{what}: got monitor={shown(name)}, of which nobody knows whether more is better; "
            "allowed: mode='max' or mode='min' beside it"
        )
    more = mode == "max" if mode != "auto" else metric != LOSS and not is_minimised(metric)
    return Monitor(found, more)


def _unknown(name: str, known: Mapping[str, str], what: str, *, validated: bool) -> InvalidArgument:
    allowed = ", ".join(dict.fromkeys(known.values()))
    hint = nearest(name[:80], known)
    if not validated and name.startswith(OF_VALIDATION):
        hint = "those that begin with val_ need a validation_table"
    return InvalidArgument(f"{what}: got monitor={shown(name)}; allowed: {allowed}", hint=hint)
