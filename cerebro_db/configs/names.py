"""Names in parameters: those of Keras, and those of functions that administrators register."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from types import MappingProxyType

from cerebro_db.configs.arguments import unknown
from cerebro_db.configs.functions.losses import LOSSES, REFUSED_LOSSES, Loss
from cerebro_db.configs.functions.metrics import METRICS, REFUSED_METRICS, Metric
from cerebro_db.configs.functions.optimizers import (
    OPTIMIZERS,
    REFUSED_OPTIMIZERS,
    SCHEDULES,
    Optimizer,
)
from cerebro_db.configs.grammar import Call
from cerebro_db.configs.messages import shown
from cerebro_db.errors import InvalidArgument

# Names of Keras and of registered functions never meet: these are written custom.name.
PREFIX = "custom."
_NAME = re.compile(r"[a-z][a-z0-9_]{0,62}")
# Nothing private, so no __globals__ and the like either.
_PATH = re.compile(r"(?!_)\w+(\.(?!_)\w+)*:(?!_)\w+", re.ASCII)
_LONGEST_PATH = 200
TOP_K = re.compile(r"top_([1-9][0-9]{0,8})_accuracy")


def is_custom(name: str) -> bool:
    """True if a name in parameters means a registered function."""
    return name.startswith(PREFIX)


def bare_name(name: str) -> str:
    """The name under which a function is registered."""
    return name.removeprefix(PREFIX)


def check_name(name: str | None, what: str = "name") -> str:
    """A name that a function may have.

    Raises:
        InvalidArgument: it is none.
    """
    if name is None or not _NAME.fullmatch(name):
        got = "NULL" if name is None else shown(name)
        raise InvalidArgument(
            f"{what}: got {got}; allowed: lower-case letters, digits and _, beginning with a letter"
        )
    return name


def parse_custom(call: Call, what: str) -> str:
    """The name, with its prefix, of a call that is one.

    Raises:
        InvalidArgument: nothing can have that name, or it has arguments.
    """
    check_name(bare_name(call.name), what)
    if call.arguments or call.values:
        raise InvalidArgument(
            f"{what}: got {shown(call)}; a registered function is named without arguments"
        )
    return call.name


def check_path(path: str | None) -> tuple[str, str]:
    """Module and function of an import path.

    Raises:
        InvalidArgument: it is none.
    """
    if path is None or len(path) > _LONGEST_PATH or not _PATH.fullmatch(path):
        got = "NULL" if path is None else shown(path)
        raise InvalidArgument(
            f"path: got {got}; allowed: module and function of an installed package, such as "
            "'package.module:function', none of them beginning with _"
        )
    module, _, function = path.partition(":")
    return module, function


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


def with_prefix(got: str, name: str, functions: Collection[str], table: str) -> str:
    """The name to write for one that MADlib writes: with the prefix, where it means a registered function.

    Args:
        got: beginning of a message about the name.
        name: as written; those of Keras win.
        functions: names in an object table.
        table: the name of that table, for messages.

    Raises:
        InvalidArgument: neither Keras nor the table has it.
    """
    if is_taken(name) or is_top_k(name):
        return name
    if name not in functions:
        raise InvalidArgument(
            f"{got} {shown(name)}, which Keras does not have; {table} has "
            f"{', '.join(sorted(functions)) or 'nothing'}",
            "cerebro.cerebro_load_custom_function adds a registered function to an object table.",
        )
    return PREFIX + name


def is_top_k(name: str) -> bool:
    """True for MADlib's ``top_3_accuracy``, with any number."""
    return bool(TOP_K.fullmatch(name))


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
