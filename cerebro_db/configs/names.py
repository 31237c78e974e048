"""Finds optimizers, losses and metrics by any of their names; knows Keras only as tables."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from cerebro_db.configs.arguments import unknown
from cerebro_db.configs.losses import LOSSES, REFUSED_LOSSES, Loss
from cerebro_db.configs.messages import shown
from cerebro_db.configs.metrics import METRICS, REFUSED_METRICS, Metric
from cerebro_db.configs.optimizers import OPTIMIZERS, REFUSED_OPTIMIZERS, Optimizer
from cerebro_db.configs.schedules import SCHEDULES
from cerebro_db.errors import InvalidArgument

PREFIXES = {
    module: ("", f"{module}.", f"keras.{module}.", f"tf.keras.{module}.",
             f"tensorflow.keras.{module}.")
    for module in ("optimizers", "losses", "metrics")
}  # fmt: skip


def find_optimizer(name: str, what: str) -> Optimizer:
    """Returns the optimizer of a name; upper and lower case do not matter, as in MADlib."""
    return OPTIMIZERS[_find(name, "optimizers", _OPTIMIZER_NAMES, REFUSED_OPTIMIZERS, what)]


def find_loss(name: str, what: str) -> Loss:
    """Returns the loss of a class name, a function name or an alias."""
    return LOSSES[_find(name, "losses", _LOSS_NAMES, REFUSED_LOSSES, what)]


def find_metric(name: str, what: str) -> Metric:
    """Returns the metric of a class name, a function name or an alias."""
    return METRICS[_find(name, "metrics", _METRIC_NAMES, REFUSED_METRICS, what)]


def is_taken(name: str) -> bool:
    """True if Keras has an optimizer, loss, metric or schedule of a name."""
    tables = (_OPTIMIZER_NAMES, _LOSS_NAMES, _METRIC_NAMES, _SCHEDULE_NAMES)
    refused = (REFUSED_OPTIMIZERS, REFUSED_LOSSES, REFUSED_METRICS)
    known = {key.lower() for table in (*tables, *refused) for key in table}
    return name.lower() in known


def _find(
    name: str, module: str, names: Mapping[str, str], refused: Mapping[str, str], what: str
) -> str:
    head, dot, bare = name.rpartition(".")
    kind = {"optimizers": "optimizer", "losses": "loss", "metrics": "metric"}[module]
    if head + dot not in PREFIXES[module]:
        raise InvalidArgument(
            f"{what}: got the {kind} {shown(name)}; allowed are those of keras.{module}",
            "Functions that an administrator has registered are written custom.name.",
        )
    for forbidden, reason in refused.items():
        if bare.lower() == forbidden.lower():
            raise InvalidArgument(f"{what}: got the {kind} {name!r}; {reason}")
    found = names.get(bare.lower())
    if found is None:
        raise unknown(what, kind, name, names.values() if module == "optimizers" else names)
    return found


def _index(entries: Mapping[str, Loss] | Mapping[str, Metric]) -> Mapping[str, str]:
    index = {key.lower(): entry.name for entry in entries.values() for key in entry.names}
    for entry in entries.values():
        # A class such as Accuracy may share its lower-case name with a function.
        index.setdefault(entry.name.lower(), entry.name)
    return MappingProxyType(index)


_OPTIMIZER_NAMES: Mapping[str, str] = MappingProxyType({name.lower(): name for name in OPTIMIZERS})
_SCHEDULE_NAMES: Mapping[str, str] = MappingProxyType({name.lower(): name for name in SCHEDULES})
_LOSS_NAMES = _index(LOSSES)
_METRIC_NAMES = _index(METRICS)
