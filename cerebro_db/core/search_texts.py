"""Texts that ask for a search: its objectives, and when it stops a trial."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext

from cerebro_db.configs.arguments import named_arguments, number, whole
from cerebro_db.configs.functions.callbacks import Monitor, monitor_of
from cerebro_db.configs.grammar import Call, named_values, parse_keywords, parse_names
from cerebro_db.configs.messages import shown
from cerebro_db.core.search import AUTO, MAXIMISE, MINIMISE, Aim, EarlyStopping
from cerebro_db.errors import InvalidArgument, hinted

MAX_EPOCHS = 1_000_000
MAX_CONFIGURATIONS = 100_000
MAX_OBJECTIVES = 8
_MODES = (AUTO, MINIMISE, MAXIMISE)


# Names in texts, and the fields that they are.
_STOPPING = {
    "patience": whole("patience", 0, low=1, high=MAX_EPOCHS),
    "least_improvement": number("min_delta", 0.0),
    "median_after": whole("median_after", 0, low=1, high=MAX_CONFIGURATIONS),
    "first_epoch": whole("first_epoch", 1, low=1, high=MAX_EPOCHS),
    "target": number("target", None, low=None, optional=False),
}


@hinted(
    "early_stopping is such as 'patience=3, min_delta=0.01' or 'median_after=5' or 'target=0.95'"
)
def parse_early_stopping(text: str | None) -> EarlyStopping:
    """Parses for example ``'patience=3, min_delta=0.01, median_after=5, target=0.95'``.

    Raises:
        InvalidArgument: there is no such rule or value, or one that has no effect.
    """
    if text is None:
        return EarlyStopping()
    what = "early_stopping"
    if not text.strip():
        raise InvalidArgument(f"{what}: got {shown(text)}; allowed: NULL, or a rule")
    given = named_arguments(parse_keywords(text, what), _STOPPING.values(), what)
    values = {
        field: argument.validated(given[argument.name], what)
        for field, argument in _STOPPING.items()
        if argument.name in given
    }
    found = EarlyStopping(**values)
    if "min_delta" in given and not found.patience:
        raise InvalidArgument(f"{what}: got min_delta without patience; allowed: both, or neither")
    if "first_epoch" in given and not found.patience and not found.median_after:
        raise InvalidArgument(
            f"{what}: got first_epoch without a rule that it belongs to; allowed: with patience or "
            "median_after"
        )
    return found


@hinted("objective is such as 'val_accuracy', 'val_auc(mode=max)' or 'val_accuracy, val_loss'")
def parse_objectives(text: str | None) -> tuple[Aim, ...]:
    """Parses for example ``'val_accuracy'`` or ``'val_auc(mode=max), loss'``; none for None.

    Raises:
        InvalidArgument: the text is no list of names, or has one twice.
    """
    if text is None:
        return ()
    what = "objective"
    aims = tuple(_aim(call, what) for call in parse_names(text, what))
    if len(aims) > MAX_OBJECTIVES:
        raise InvalidArgument(f"{what}: got {len(aims)} objectives; allowed: 1 to {MAX_OBJECTIVES}")
    names = [aim.monitor for aim in aims]
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise InvalidArgument(f"{what}: got {shown(twice[0])} twice; allowed: each once")
    return aims


def _aim(call: Call, what: str) -> Aim:
    given = named_values(call, ("mode",), f"{what}: {call.name}")
    mode = given.pop("mode", AUTO)
    mode = mode.name if isinstance(mode, Call) else mode
    if given:
        raise InvalidArgument(
            f"{what}: got the argument {shown(next(iter(given)))} of {call.name}; allowed: mode"
        )
    if mode not in _MODES:
        raise InvalidArgument(
            f"{what}: got mode={shown(mode)} of {call.name}; allowed: {', '.join(_MODES)}"
        )
    return Aim(call.name, mode)


def monitors_of_aims(
    aims: tuple[Aim, ...], metrics: Mapping[str, str], *, validated: bool
) -> tuple[Monitor, ...]:
    """Series of values that objectives are of, for a configuration.

    Args:
        aims: as given; none for the loss, that of the validation table where there is one.
        metrics: classes of the configuration's metrics by label.
        validated: whether there is a validation table.

    Raises:
        InvalidArgument: the configuration has no such metric, or nobody knows which way is better.
    """
    wanted = aims or (Aim("val_loss" if validated else "loss"),)
    found = tuple(_monitor(aim, metrics, validated=validated) for aim in wanted)
    named: dict[str, str] = {}
    for aim, monitor in zip(wanted, found, strict=True):
        other = named.setdefault(monitor.name, aim.monitor)
        if other != aim.monitor:
            raise InvalidArgument(
                f"objective: got {shown(other)} and {shown(aim.monitor)}, two names of one metric; "
                "allowed: each metric once",
                hint="objective is such as 'val_accuracy, val_loss'",
            )
    return found


def _monitor(aim: Aim, metrics: Mapping[str, str], *, validated: bool) -> Monitor:
    hint = f"objective := '{aim.monitor}(mode=max)' says that more is better"
    with hinted(hint) if aim.mode == AUTO else nullcontext():
        return monitor_of(
            aim.monitor, aim.mode, metrics, validated=validated, what="objective", named=""
        )
