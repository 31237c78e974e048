"""Callbacks of fit parameters: those that act between epochs, and why others may not be."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import ClassVar

from msgspec import Struct

from cerebro_db.configs.arguments import (
    OBJECT,
    TEXT,
    Argument,
    Arguments,
    Declaration,
    Declarations,
    Named,
    allowed_if,
    choice,
    flag,
    fraction,
    nearest,
    number,
    validated_arguments,
    whole,
)
from cerebro_db.configs.functions.metrics import METRICS
from cerebro_db.configs.functions.optimizers import ScheduleSpec
from cerebro_db.configs.functions.torch_schedules import parse_any_schedule
from cerebro_db.configs.grammar import Call, parse_call, parse_keywords
from cerebro_db.configs.messages import shown
from cerebro_db.configs.names import is_custom, parse_custom
from cerebro_db.errors import InvalidArgument

EARLY_STOPPING, PLATEAU, SCHEDULER = "EarlyStopping", "ReduceLROnPlateau", "LearningRateScheduler"
TENSORBOARD = "TensorBoard"
MONITORING = (EARLY_STOPPING, PLATEAU)
SETTING_RATES = (PLATEAU, SCHEDULER)
# A configuration whose loss is no number fails within the same hop, with or without it.
_DONE_ANYWAY = "TerminateOnNaN"
_MONITOR = Argument("monitor", TEXT, "val_loss")
_MODE = choice("mode", "auto", "auto", "min", "max")
# Keras takes any number, and is silent or not; here nothing is printed.
_VERBOSE = whole("verbose", 0, low=None)
_SCHEDULE = "schedule"
# Folders whose names begin with no dot, so that none leads out of the directory.
LOG_DIR = re.compile(r"\w[\w.-]{0,99}(/\w[\w.-]{0,99}){0,9}", re.ASCII)
_FOLDER = allowed_if(
    "a relative path of letters, digits, _, - and ., such as 'fit/first'",
    lambda value: isinstance(value, str) and bool(LOG_DIR.fullmatch(value)),
    "/tmp/logs", "../logs", "", 7,
)  # fmt: skip


def _callback(name: str, *arguments: Argument) -> Declaration:
    """A callback whose arguments are in the order of Keras 3.15, so that all may be given by place."""
    return Declaration(name, arguments, len(arguments))


CALLBACKS = Declarations(
    "callbacks",
    "callback",
    (
        _callback(
            EARLY_STOPPING,
            _MONITOR,
            number("min_delta", 0.0, low=None),
            whole("patience", 0),
            _VERBOSE,
            _MODE,
            number("baseline", None, low=None),
            flag("restore_best_weights", False),
            whole("start_from_epoch", 0),
        ),
        _callback(
            PLATEAU,
            _MONITOR,
            fraction("factor", 0.1),
            whole("patience", 10),
            _VERBOSE,
            _MODE,
            number("min_delta", 1e-4, low=None),
            whole("cooldown", 0),
            number("min_lr", 0.0),
        ),
        _callback(SCHEDULER, Argument(_SCHEDULE, OBJECT, required=True), _VERBOSE),
        _callback(TENSORBOARD, Argument("log_dir", _FOLDER, "logs")),
        _callback(_DONE_ANYWAY),
    ),
    {
        "BackupAndRestore": "cerebro.cerebro_resume goes on with a run",
        "CSVLogger": "cerebro.metrics has what it would write",
        "LambdaCallback": "it runs code that is not part of Keras",
        "ModelCheckpoint": "the states of a run are kept after each hop",
        "ProgbarLogger": "cerebro.progress tells how far a run is",
        "RemoteMonitor": "it sends data to another machine",
        "SwapEMAWeights": "averages of weights are not in this release",
    },
)


class CallbackSpec(Named, frozen=True):
    """A callback: its class in Keras and the arguments that differ from the defaults."""

    declared: ClassVar = CALLBACKS

    @property
    def schedule(self) -> ScheduleSpec | None:
        """The learning rate schedule that a scheduler evaluates at each epoch."""
        found = dict(self.arguments).get(_SCHEDULE)
        return found if isinstance(found, ScheduleSpec) else None


def parse_callbacks(value: object, what: str) -> tuple[CallbackSpec, ...]:
    """Callbacks from a list of calls or of their texts, in order, without what is done anyway.

    Raises:
        InvalidArgument: one is not known or not allowed, is there twice, or has a wrong argument.
    """
    # MADlib's users write the list as a text.
    read = parse_keywords(f"callbacks={value}", what) if isinstance(value, str) else {}
    calls = read.get("callbacks", value)
    calls = [calls] if isinstance(calls, Call) else calls
    if not isinstance(calls, list | tuple):
        raise InvalidArgument(
            f"{what}: got callbacks={shown(value)}; it must be a list such as [TerminateOnNaN()]"
        )
    specs = [_parsed(call, what) for call in calls]
    found = [spec for spec in specs if spec.name != _DONE_ANYWAY]
    _check_together([spec.name for spec in found], what)
    return tuple(found)


def _check_together(names: list[str], what: str) -> None:
    for name in names:
        if names.count(name) > 1:
            raise InvalidArgument(f"{what}: got {name} twice; allowed: each callback once")
    if set(SETTING_RATES) <= set(names):
        raise InvalidArgument(
            f"{what}: got {' and '.join(SETTING_RATES)}; allowed is one of them: what the first sets, "
            "the second would overwrite at the next epoch"
        )


def _parsed(value: object, what: str) -> CallbackSpec:
    call = parse_call(value, f"{what}: callbacks") if isinstance(value, str) else value
    if not isinstance(call, Call):
        raise InvalidArgument(f"{what}: got the callback {shown(value)}; it must be a name")
    callback = CALLBACKS.find(call.name, what)
    if callback.name == _DONE_ANYWAY and (call.arguments or call.values):
        raise InvalidArgument(f"{what}: got {shown(call)}; {callback.name} has no arguments")
    what = f"{what}: {callback.name}"
    given = callback.given(call, what)
    rest = callback.arguments
    first: Arguments = ()
    if callback.name == SCHEDULER:
        first, rest = ((_SCHEDULE, _schedule(given.pop(_SCHEDULE, None), what)),), rest[1:]
    arguments = validated_arguments(rest, given, {}, what)
    # What is printed is no part of what is trained.
    kept = tuple(pair for pair in arguments if pair[0] != _VERBOSE.name)
    return CallbackSpec(callback.name, first + kept)


def _schedule(value: object, what: str) -> ScheduleSpec:
    call = parse_call(value, what) if isinstance(value, str) else value
    if isinstance(call, Call) and is_custom(call.name):
        return ScheduleSpec(parse_custom(call, what), ())
    if isinstance(call, Call):
        return parse_any_schedule(call, what)
    raise InvalidArgument(
        f"{what}: got schedule={shown(value)}; it must be a schedule such as "
        "ExponentialDecay(0.01, 10, 0.9), whose steps are epochs"
    )


LOSS, OF_VALIDATION = "loss", "val_"
_MINIMISED = (
    "Crossentropy", "CrossEntropy", "Error", "Hinge", "Divergence", "LogCosh", "Poisson",
    "FalsePositives", "FalseNegatives",
)  # fmt: skip
# Keras does not say which way they are better.
_UNDECIDED = ("FalseNegatives", "FalsePositives", "TrueNegatives", "TruePositives")


class Monitor(Struct, frozen=True):
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
    name: str,
    mode: str,
    metrics: Mapping[str, str],
    *,
    validated: bool,
    what: str,
    named: str = "monitor=",
) -> Monitor:
    """The monitor of a callback.

    Args:
        name, mode: its arguments.
        metrics: classes of the metrics by label.
        validated: whether there is a validation table.
        what: for messages.
        named: what is written before the name where it was given, for messages.

    Raises:
        InvalidArgument: there is no such monitor, or which way is better is not known.
    """
    known = monitors_of([(kind, label) for label, kind in metrics.items()], validated=validated)
    if name not in known:
        raise _unknown(f"{what}: got {named}", name, known, validated=validated)
    found = known[name]
    metric = metrics.get(found, metrics.get(found.removeprefix(OF_VALIDATION), LOSS))
    if mode == "auto" and (metric in _UNDECIDED or is_custom(metric)):
        raise InvalidArgument(
            f"{what}: got {named}{shown(name)}, of which nobody knows whether more is better; "
            "allowed: mode='max' or mode='min' beside it"
        )
    more = mode == "max" if mode != "auto" else metric != LOSS and not is_minimised(metric)
    return Monitor(found, more)


def _unknown(got: str, name: str, known: Mapping[str, str], *, validated: bool) -> InvalidArgument:
    allowed = ", ".join(dict.fromkeys(known.values()))
    hint = nearest(name[:80], known)
    if not validated and name.startswith(OF_VALIDATION):
        hint = "those that begin with val_ need a validation_table"
    return InvalidArgument(f"{got}{shown(name)}; allowed: {allowed}", hint=hint)
