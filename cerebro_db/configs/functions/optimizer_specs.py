"""Optimizers of configurations: frozen values, and their parsing from calls."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from cerebro_db.configs.arguments import (
    Argument,
    Kind,
    unknown,
    validated_arguments,
    with_defaults,
)
from cerebro_db.configs.functions.optimizers import (
    ARGUMENT_ALIASES,
    DECAY,
    OPTIMIZER_MAP,
    OPTIMIZERS,
    REFUSED_ARGUMENTS,
    Optimizer,
    ScheduleSpec,
    parse_schedule,
)
from cerebro_db.configs.grammar import Call, call_of, named_values, parse_call
from cerebro_db.configs.messages import shown
from cerebro_db.configs.names import PREFIXES, find_optimizer
from cerebro_db.errors import InvalidArgument

_MAP = "OptimizerMap"
_MAP_NAMES = frozenset(f"{start}{_MAP}".lower() for start in PREFIXES["optimizers"])
_MAP_PLACES = ("default_optimizer", OPTIMIZER_MAP)
_EXAMPLE = f"{_MAP}(Adam(0.001), {{'dense/.*': SGD(0.1)}})"
_PATTERN = Argument(f"a key of {OPTIMIZER_MAP}", Kind.PATTERNS)


@dataclass(frozen=True)
class OptimizerSpec:
    """An optimizer: its class in Keras and the arguments that differ from the defaults.

    Args:
        parts: of a MultiOptimizer: which optimizer trains the weights of a pattern of paths; the
            last one, without a pattern, trains the others.
    """

    name: str
    arguments: tuple[tuple[str, Any], ...] = ()
    parts: tuple[tuple[str | None, OptimizerSpec], ...] = ()

    def all_arguments(self) -> dict[str, Any]:
        """Every argument with its value, defaults included."""
        return with_defaults(OPTIMIZERS[self.name].arguments, self.arguments)

    @property
    def schedule(self) -> ScheduleSpec | None:
        """The schedule of the learning rate, where there is one."""
        rate = dict(self.arguments).get("learning_rate")
        return rate if isinstance(rate, ScheduleSpec) else None

    @property
    def keeps_averages(self) -> bool:
        """True if there are averages of weights beside them."""
        if self.parts:
            return any(part.keeps_averages for _, part in self.parts)
        return bool(self.all_arguments()["use_ema"])


def parse_optimizer(value: object, what: str = "optimizer") -> OptimizerSpec:
    """Parses ``'Adam'``, ``'Adam(lr=0.1)'`` or the same without quotes."""
    call = call_of(value, "optimizer", what)
    entry = find_optimizer(call.name, what)
    what = f"{what}: {entry.name}"
    places = tuple(argument.name for argument in entry.arguments[: entry.by_place])
    given = named_values(call, places, what)
    if "epsilon" in given and given["epsilon"] is None:  # how Keras 2 wrote its default
        del given["epsilon"]
    for name in given:
        if name in REFUSED_ARGUMENTS:
            raise InvalidArgument(f"{what}: got {name!r}; {REFUSED_ARGUMENTS[name]}")
    if entry.arguments[0].name == OPTIMIZER_MAP:
        parts = _parts(given, what)
        return OptimizerSpec(
            entry.name, validated_arguments(entry.arguments[1:], given, {}, what), parts
        )
    schedule = _schedule(entry, given, what)
    arguments = validated_arguments(entry.arguments, given, ARGUMENT_ALIASES, what)
    if schedule is not None:
        arguments = (("learning_rate", schedule), *arguments)
    clips = [name for name, _ in arguments if name in ("clipnorm", "clipvalue", "global_clipnorm")]
    if len(clips) > 1:
        raise InvalidArgument(f"{what}: got {' and '.join(clips)}; at most one is allowed")
    return OptimizerSpec(entry.name, arguments)


def _parts(given: dict[str, Any], what: str) -> tuple[tuple[str | None, OptimizerSpec], ...]:
    """Takes the map of optimizers out of given arguments."""
    value = given.pop(OPTIMIZER_MAP, None)
    if isinstance(value, str):
        value = parse_call(value, f"{what}: {OPTIMIZER_MAP}")
    if not isinstance(value, Call) or value.name.lower() not in _MAP_NAMES:
        raise InvalidArgument(
            f"{what}: got {OPTIMIZER_MAP}={shown(value)}; it must be such as {_EXAMPLE}"
        )
    what = f"{what}: {_MAP}"
    named = named_values(value, _MAP_PLACES, what)
    for name in named:
        if name not in _MAP_PLACES:
            raise unknown(what, "argument", name, _MAP_PLACES)
    by_pattern = named.get(OPTIMIZER_MAP)
    if by_pattern is None:
        by_pattern = {}
    if not isinstance(by_pattern, dict) or "default_optimizer" not in named:
        raise InvalidArgument(
            f"{what}: got {shown(value)}; it must have a default optimizer, and a dictionary from "
            f"paths of weights, or patterns of them, to optimizers: {_EXAMPLE}"
        )
    others = _part(named["default_optimizer"], what)
    found = [(_pattern(key, what), _part(one, what)) for key, one in by_pattern.items()]
    return (*found, (None, others))


def _pattern(value: object, what: str) -> str:
    return str(_PATTERN.validated(value, what)[0])


def _part(value: object, what: str) -> OptimizerSpec:
    part = parse_optimizer(value, what)
    if part.parts:
        raise InvalidArgument(f"{what}: got {part.name} inside of it; allowed are all the others")
    return part


def _schedule(entry: Optimizer, given: dict[str, Any], what: str) -> ScheduleSpec | None:
    """Takes the schedule of the learning rate out of given arguments."""
    decay = DECAY.validated(given.pop(DECAY.name, None), what)
    names = [name for name in ("learning_rate", "lr") if name in given]
    rate = given[names[0]] if names else None
    if isinstance(rate, Call | str) and len(names) == 1:
        if decay:
            raise InvalidArgument(
                f"{what}: got a schedule of the learning rate and decay={decay}; allowed is one"
            )
        del given[names[0]]
        return parse_schedule(rate, f"{what}: {names[0]}")
    if not decay:
        return None
    validated = dict(validated_arguments(entry.arguments, given, ARGUMENT_ALIASES, what))
    for name in names:
        del given[name]
    start = validated.get("learning_rate", with_defaults(entry.arguments, ())["learning_rate"])
    steps = {"initial_learning_rate": start, "decay_steps": 1, "decay_rate": decay}
    return ScheduleSpec("InverseTimeDecay", tuple(steps.items()))
