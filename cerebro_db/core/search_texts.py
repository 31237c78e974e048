"""Texts that ask for a search: its method, its objectives, when it stops a trial."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import nullcontext
from typing import Any

from cerebro_db.configs.arguments import Argument, nearest, number, unknown, whole
from cerebro_db.configs.functions.callbacks import Monitor, monitor_of
from cerebro_db.configs.grammar import Call, named_values, parse_keywords, parse_names
from cerebro_db.configs.grids.brackets import Bracket, brackets, largest_bracket
from cerebro_db.configs.grids.search_methods import HYPERBAND, METHODS, RANDOM, TPE, find_method
from cerebro_db.configs.messages import check_range, shown
from cerebro_db.core.search import AUTO, MAXIMISE, MINIMISE, Aim, EarlyStopping
from cerebro_db.errors import InvalidArgument, hinted

__all__ = [
    "HYPEROPT",
    "checked_more",
    "monitors_of_aims",
    "parse_early_stopping",
    "parse_method",
    "parse_more",
    "parse_objectives",
    "schedule_of",
]

MAX_EPOCHS = 1_000_000
MAX_CONFIGURATIONS = 100_000
MAX_OBJECTIVES = 8
HYPEROPT = "hyperopt"
_MODES = (AUTO, MINIMISE, MAXIMISE)
_ALIASES = {"sha": "successive_halving"}
_ALGORITHMS = {"tpe": TPE, "rand": RANDOM, "random": RANDOM}
_ALGORITHM = "algorithm"


@hinted(
    "automl_params are such as 'R=9, eta=3, skip_last=0'; docs/search.md lists those of each method"
)
def parse_method(
    automl_method: str | None, automl_params: str | None
) -> tuple[str, dict[str, Any]]:
    """Parses for example ``'hyperband'``, ``'R=9, eta=3, skip_last=0'``; None for the defaults.

    Returns:
        The method, and all of its parameters. MADlib's ``hyperopt`` is another name of ``tpe``, or
        with ``algorithm=rand`` of ``random``.

    Raises:
        InvalidArgument: there is no such method, or it has no such parameter or value.
    """
    method = _method_name(automl_method)
    given = parse_keywords(automl_params or "", "automl_params")
    found = find_method(_of_hyperopt(given) if method == HYPEROPT else method)
    what = f"automl_params of {method}"
    params = found.validated(_named(given, found.parameters, what))
    if "skip_last" in params:
        _check_brackets(params["R"], params["eta"], params["skip_last"], what)
    return found.name, params


@hinted(
    "automl_params are such as 'num_configs=10' or 'R=27': more of those that the search began with"
)
def parse_more(method: str, params: Mapping[str, Any], automl_params: str | None) -> dict[str, Any]:
    """Parses what a search shall have more of: those parameters of its method that are given.

    Args:
        method: of the search.
        params: that it began with.
        automl_params: as given.

    Raises:
        InvalidArgument: the method has no such parameter, there cannot be more of it, or it cannot
            have that value.
    """
    return checked_more(method, params, parse_keywords(automl_params or "", "automl_params"))


def checked_more(
    method: str, params: Mapping[str, Any], keywords: Mapping[str, Any]
) -> dict[str, Any]:
    """Check the parameters that a search shall have more of."""
    what, found = f"automl_params of {method}", find_method(method)
    allowed = ", ".join(one.name for one in found.more)
    for key in keywords:
        if key in {one.name for one in found.parameters} - {one.name for one in found.more}:
            raise InvalidArgument(
                f"{what}: got {key} for a search that goes on; allowed: {allowed}",
                hint=f"{key} stays as the search began with it",
            )
    given = _named(keywords, found.more, what)
    more = {
        one.name: one.validated(given[one.name], what) for one in found.more if one.name in given
    }
    if "R" in more and "skip_last" in params:
        _check_brackets(more["R"], params["eta"], params["skip_last"], what)
    return more


def _method_name(given: str | None) -> str:
    """The name of a method; case, and what joins words, do not matter."""
    if given is None:
        return HYPERBAND
    names = (*METHODS, HYPEROPT)
    text = str(given).strip().lower()
    for name in names:
        if _bare(name) == _bare(_ALIASES.get(text, text)):
            return name
    raise InvalidArgument(
        f"automl_method: got {shown(given)}; allowed: {', '.join(names)}",
        hint=nearest(text[:80], names),
    )


def _bare(name: str) -> str:
    return name.replace("-", "").replace("_", "").replace(" ", "")


def _of_hyperopt(given: dict[str, Any]) -> str:
    """The method that MADlib's `algorithm` stands for; takes it out of what is given."""
    key = next((key for key in given if key.lower() == _ALGORITHM), None)
    value = given.pop(key) if key is not None else TPE
    name = value.name if isinstance(value, Call) and not value.arguments else value
    found = _ALGORITHMS.get(name.lower()) if isinstance(name, str) else None
    if found is None:
        raise InvalidArgument(
            f"automl_params of {HYPEROPT}: got algorithm={shown(name)}; allowed: "
            f"{', '.join(map(repr, _ALGORITHMS))}"
        )
    return found


def _named(given: Mapping[str, Any], table: Iterable[Argument], what: str) -> dict[str, Any]:
    """The values by argument names, which may be written in any case that tells them apart."""
    names = [argument.name for argument in table]
    found: dict[str, Any] = {}
    for key, value in given.items():
        alike = [name for name in names if name.lower() == key.lower()]
        name = key if key in names or len(alike) != 1 else alike[0]
        if name not in names:
            raise unknown(what, "parameter", key, names)
        if name in found:
            raise InvalidArgument(f"{what}: got {name} twice; allowed: once")
        found[name] = value
    return found


def schedule_of(r: int | None, eta: int | None, skip_last: int | None) -> list[Bracket]:
    """The brackets of Hyperband for what someone asks.

    Raises:
        InvalidArgument: a number is out of its range, or the brackets are too large.
    """
    check_range("r", r, 1, MAX_EPOCHS, optional=False)
    check_range("eta", eta, 2, MAX_EPOCHS, optional=False)
    check_range("skip_last", skip_last, 0, MAX_EPOCHS, optional=False)
    numbers = int(r or 0), int(eta or 0), int(skip_last or 0)
    _check_brackets(*numbers)
    return brackets(*numbers)


def _check_brackets(r: int, eta: int, skip_last: int, what: str = "") -> None:
    """Refuse brackets of no rungs, or too many.

    Args:
        r, eta, skip_last: of the brackets.
        what: whose parameters they are; empty where they are arguments of their own.
    """
    most = largest_bracket(r, eta)
    if skip_last > most:
        got = f"{what}: got skip_last={skip_last}" if what else f"skip_last: got {skip_last}"
        raise InvalidArgument(
            f"{got}; allowed: 0 to {most}, as the largest bracket of "
            f"R={r}, eta={eta} has {most + 1} rungs"
        )
    # The first bracket alone may be too many to write down.
    count = eta**most
    if count <= MAX_CONFIGURATIONS:
        count = sum(one.rungs[0].configurations for one in brackets(r, eta, skip_last))
    if count > MAX_CONFIGURATIONS:
        got = f"{what}: got R={r}, eta={eta}," if what else f"r: got {r} with eta := {eta},"
        raise InvalidArgument(
            f"{got} whose brackets have {count} configurations or more; allowed: {MAX_CONFIGURATIONS}",
            hint="a larger eta makes smaller brackets",
        )


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
    given = _named(parse_keywords(text, what), _STOPPING.values(), what)
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
