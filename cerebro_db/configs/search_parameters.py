"""What a search is asked for in texts: its method, its objectives, when it stops a configuration."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from cerebro_db.configs.arguments import Argument, flag, fraction, nearest, number, whole
from cerebro_db.configs.brackets import Bracket, brackets, largest_bracket
from cerebro_db.configs.grammar import Call, named_values, parse_keywords, parse_names
from cerebro_db.configs.messages import check_range, shown
from cerebro_db.configs.monitors import Monitor, monitor_of
from cerebro_db.errors import InvalidArgument, hinted

__all__ = [
    "METHODS",
    "EarlyStopping",
    "Goal",
    "SearchMethod",
    "monitors_of_goals",
    "parse_early_stopping",
    "parse_method",
    "parse_objectives",
    "schedule_of",
]

MAX_EPOCHS = 1_000_000
MAX_CONFIGURATIONS = 100_000
MAX_OBJECTIVES = 8
HYPEROPT = "hyperopt"
_MODES = ("auto", "min", "max")


@dataclass(frozen=True)
class SearchMethod:
    """A method with every parameter that it has.

    Attributes:
        name: as in `METHODS`.
        arguments: names and values, defaults included, in the order of the documentation.
    """

    name: str
    arguments: tuple[tuple[str, Any], ...]

    @property
    def params(self) -> dict[str, Any]:
        """The arguments by name."""
        return dict(self.arguments)


@dataclass(frozen=True)
class Goal:
    """An objective as it was given.

    Attributes:
        name: ``loss`` or the label of a metric, after ``val_`` where it is of the validation table.
        mode: ``auto``, ``min`` or ``max``.
    """

    name: str
    mode: str = "auto"


@dataclass(frozen=True)
class EarlyStopping:
    """When a configuration is stopped before its epochs are done, besides what the method stops.

    One whose objective is not a number is always stopped.

    Attributes:
        patience: epochs without an improvement after which it is stopped; 0 for never.
        min_delta: least change of the objective that is an improvement.
        median: whether it is stopped where its best is worse than the median of the others after
            the same epoch.
        startup: configurations that are not stopped by the median rule, as there is nothing to
            compare them with.
        warmup: epochs in which the median rule stops nothing.
        target: the search ends when an objective reaches this; None for no such value.
    """

    patience: int = 0
    min_delta: float = 0.0
    median: bool = False
    startup: int = 5
    warmup: int = 0
    target: float | None = None

    @property
    def looks_at_epochs(self) -> bool:
        """Whether each epoch has to be scored."""
        return self.patience > 0 or self.median or self.target is not None


def _configurations(default: int, name: str = "num_configs", low: int = 1) -> Argument:
    return whole(name, default, low=low, high=MAX_CONFIGURATIONS)


def _epochs(name: str, default: int) -> Argument:
    return whole(name, default, low=1, high=MAX_EPOCHS)


_R, _ETA = _epochs("R", 6), whole("eta", 3, low=2, high=MAX_EPOCHS)
_SKIP_LAST, _MIN_EPOCHS = whole("skip_last", 0), _epochs("min_epochs", 1)
_NUM_CONFIGS, _NUM_ITERATIONS = _configurations(20), _epochs("num_iterations", 5)


def _startup(default: int) -> Argument:
    return whole("startup", default, low=1, high=MAX_CONFIGURATIONS)


# What a method is asked for; texts name parameters in any case.
METHODS: Mapping[str, tuple[Argument, ...]] = {
    "grid": (_NUM_ITERATIONS,),
    "random": (_NUM_CONFIGS, _NUM_ITERATIONS),
    "successive_halving": (_R, _ETA, _configurations(9), _MIN_EPOCHS),
    "hyperband": (_R, _ETA, _SKIP_LAST),
    "asha": (_R, _ETA, _NUM_CONFIGS, _MIN_EPOCHS),
    "tpe": (_NUM_CONFIGS, _NUM_ITERATIONS, _startup(10)),
    "bohb": (_R, _ETA, _SKIP_LAST, _startup(10)),
    "pbt": (
        _configurations(8, "population", low=2),
        _epochs("generations", 5),
        _epochs("interval", 1),
        number("quantile", 0.25, low_open=True, high=0.5),
        number("factor", 1.2, low=1.0, low_open=True),
        fraction("resample", 0.25, high_open=False),
    ),
    "gp": (_NUM_CONFIGS, _NUM_ITERATIONS, _startup(10)),
    "cma-es": (_NUM_CONFIGS, _NUM_ITERATIONS, _startup(1)),
}
# Other names of methods; case and what joins words don't matter.
_ALIASES = {"sha": "successive_halving", "cmaes": "cma-es"}
_ALGORITHMS = {"tpe": "tpe", "rand": "random", "random": "random"}  # of MADlib's hyperopt
_ALGORITHM = "algorithm"


@hinted(
    "automl_params are such as 'R=9, eta=3, skip_last=0'; docs/search.md lists those of each method"
)
def parse_method(automl_method: str | None, automl_params: str | None) -> SearchMethod:
    """Parses for example ``'hyperband'``, ``'R=9, eta=3, skip_last=0'``; None for the defaults.

    Raises:
        InvalidArgument: there is no such method, or it has no such parameter or value.
    """
    method = _method_name(automl_method)
    what = "automl_params"
    given = parse_keywords(automl_params or "", what)
    name = _hyperopt(given, what) if method == HYPEROPT else method
    values = _values(METHODS[name], given, what, f"method {method}")
    search = SearchMethod(name, tuple(values.items()))
    if name in _CHECKS:
        _CHECKS[name](search.params, what)
    return search


def _method_name(given: str | None) -> str:
    """The name of a method as `METHODS` has it, or `HYPEROPT`."""
    if given is None:
        return "hyperband"
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


def _hyperopt(given: dict[str, Any], what: str) -> str:
    """The method that MADlib's `algorithm` stands for; takes it out of what is given."""
    key = next((key for key in given if key.lower() == _ALGORITHM), None)
    value = given.pop(key) if key is not None else "tpe"
    name = value.name if isinstance(value, Call) and not value.arguments else value
    found = _ALGORITHMS.get(name.lower()) if isinstance(name, str) else None
    if found is None:
        raise InvalidArgument(f"{what}: got algorithm={shown(value)}; allowed: 'tpe', 'rand'")
    return found


def _values(
    table: Iterable[Argument], given: Mapping[str, Any], what: str, of: str
) -> dict[str, Any]:
    """The value of each argument, by its name; names may be given in any case.

    Args:
        table: the arguments.
        given: by what was written.
        what: for messages.
        of: whose arguments these are, for messages.
    """
    arguments = {argument.name.lower(): argument for argument in table}
    values = {argument.name: argument.default for argument in arguments.values()}
    for key in given:
        if key.lower() not in arguments:
            names = [argument.name for argument in arguments.values()]
            raise InvalidArgument(
                f"{what}: got the unknown parameter {shown(key)}; allowed for {of}: "
                f"{', '.join(names)}",
                hint=nearest(key[:80], names),
            )
    lowered = [key.lower() for key in given]
    twice = [key for key in given if lowered.count(key.lower()) > 1]
    if twice:
        raise InvalidArgument(f"{what}: got {' and '.join(twice)}, which mean the same")
    for key, value in given.items():
        argument = arguments[key.lower()]
        values[argument.name] = argument.validated(value, what)
    return values


def schedule_of(r: int | None, eta: int | None, skip_last: int | None) -> list[Bracket]:
    """The brackets of Hyperband for what someone asks.

    Raises:
        InvalidArgument: a number is out of its range, or the brackets are too large.
    """
    check_range("r", r, 1, MAX_EPOCHS, optional=False)
    check_range("eta", eta, 2, MAX_EPOCHS, optional=False)
    check_range("skip_last", skip_last, 0, MAX_EPOCHS, optional=False)
    numbers = int(r or 0), int(eta or 0), int(skip_last or 0)
    _check_brackets(dict(zip(("R", "eta", "skip_last"), numbers, strict=True)), "schedule")
    return brackets(*numbers)


def _check_brackets(params: Mapping[str, Any], what: str) -> None:
    r, eta, skip_last = (params[name] for name in ("R", "eta", "skip_last"))
    most = largest_bracket(r, eta)
    if skip_last > most:
        raise InvalidArgument(
            f"{what}: got skip_last={skip_last}; allowed: 0 to {most}, as the largest bracket of "
            f"R={r}, eta={eta} has {most + 1} rungs"
        )
    # The first bracket alone may be too many to write down.
    count = eta**most
    if count <= MAX_CONFIGURATIONS:
        count = sum(one.rungs[0].configurations for one in brackets(r, eta, skip_last))
    if count > MAX_CONFIGURATIONS:
        raise InvalidArgument(
            f"{what}: got R={r}, eta={eta}, whose brackets have {count} configurations or more; "
            f"allowed: {MAX_CONFIGURATIONS}",
            hint="a larger eta makes smaller brackets",
        )


def _check_rungs(params: Mapping[str, Any], what: str) -> None:
    if params["min_epochs"] > params["R"]:
        raise InvalidArgument(
            f"{what}: got min_epochs={params['min_epochs']}; allowed: 1 to R, which is {params['R']}"
        )


def _check_population(params: Mapping[str, Any], what: str) -> None:
    if params["generations"] * params["interval"] > MAX_EPOCHS:
        raise InvalidArgument(
            f"{what}: got generations={params['generations']} of interval={params['interval']}; "
            f"allowed: {MAX_EPOCHS} epochs together"
        )


_CHECKS: Mapping[str, Callable[[Mapping[str, Any], str], None]] = {
    "hyperband": _check_brackets,
    "bohb": _check_brackets,
    "successive_halving": _check_rungs,
    "asha": _check_rungs,
    "pbt": _check_population,
}

_STOPPING = (
    whole("patience", 0, low=0, high=MAX_EPOCHS),
    number("min_delta", 0.0),
    flag("median", False),
    whole("startup", 5, low=1, high=MAX_CONFIGURATIONS),
    whole("warmup", 0, low=0, high=MAX_EPOCHS),
    number("target", None, low=None),
)
_NEEDED = {"min_delta": "patience", "startup": "median", "warmup": "median"}


@hinted(
    "early_stopping is such as 'patience=3, min_delta=0.01' or 'median=True, startup=5' or "
    "'target=0.95'"
)
def parse_early_stopping(text: str | None) -> EarlyStopping:
    """Parses for example ``'patience=3, min_delta=0.01, median=True, target=0.95'``.

    Raises:
        InvalidArgument: there is no such rule or value, or one that has no effect.
    """
    if text is None:
        return EarlyStopping()
    what = "early_stopping"
    given = parse_keywords(text, what)
    values = _values(_STOPPING, given, what, "early_stopping")
    for key in map(str.lower, given):
        if key in _NEEDED and not values[_NEEDED[key]]:
            raise InvalidArgument(
                f"{what}: got {key} without {_NEEDED[key]}; allowed: both, or neither"
            )
    return EarlyStopping(**values)


@hinted("objective is such as 'val_accuracy', 'val_auc(mode=max)' or 'val_accuracy, val_loss'")
def parse_objectives(text: str | None) -> tuple[Goal, ...]:
    """Parses for example ``'val_accuracy'`` or ``'val_auc(mode=max), loss'``; none for None.

    Raises:
        InvalidArgument: the text is no list of names, or has one twice.
    """
    if text is None:
        return ()
    what = "objective"
    calls = parse_names(text, what)
    goals = tuple(_goal(call, what) for call in calls)
    if not 1 <= len(goals) <= MAX_OBJECTIVES:
        raise InvalidArgument(
            f"{what}: got {len(goals)} objectives; allowed: 1 to {MAX_OBJECTIVES}"
        )
    names = [goal.name for goal in goals]
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise InvalidArgument(f"{what}: got {shown(twice[0])} twice; allowed: each once")
    return goals


def _goal(call: Call, what: str) -> Goal:
    given = named_values(call, ("mode",), f"{what}: {call.name}")
    mode = given.pop("mode", "auto")
    mode = mode.name if isinstance(mode, Call) else mode
    if given:
        raise InvalidArgument(
            f"{what}: got the argument {shown(next(iter(given)))} of {call.name}; allowed: mode"
        )
    if mode not in _MODES:
        raise InvalidArgument(
            f"{what}: got mode={shown(mode)} of {call.name}; allowed: {', '.join(_MODES)}"
        )
    return Goal(call.name, mode)


def monitors_of_goals(
    goals: tuple[Goal, ...], metrics: Mapping[str, str], *, validated: bool
) -> tuple[Monitor, ...]:
    """What the objectives are for a configuration.

    Args:
        goals: as given; none for the loss, that of the validation table where there is one.
        metrics: classes of the configuration's metrics by label.
        validated: whether there is a validation table.

    Raises:
        InvalidArgument: the configuration has no such metric, or nobody knows which way is better.
    """
    wanted = goals or (Goal("val_loss" if validated else "loss"),)
    found = []
    for goal in wanted:
        with hinted(f"objective := '{goal.name}(mode=max)' says that more is better"):
            found.append(
                monitor_of(
                    goal.name, goal.mode, metrics, validated=validated, what="objective", named=""
                )
            )
    return tuple(found)
