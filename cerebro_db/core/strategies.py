"""The strategies of a run: their names and parameters, with defaults and bounds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from cerebro_db.configs.arguments import (
    Argument,
    choice,
    nearest,
    number,
    unknown,
    validated_arguments,
    whole,
    with_defaults,
)
from cerebro_db.configs.grammar import Call, parse_keywords
from cerebro_db.configs.messages import shown
from cerebro_db.core.spec import (
    ALLREDUCE,
    AUTO,
    AVERAGING,
    GROUPS,
    HOPPER,
    PARAMETER_SERVER,
    PIPE,
    ROTATION,
    SIDE_BY_SIDE,
    TASK,
    Asynchrony,
    Speeds,
)
from cerebro_db.errors import InvalidArgument, hinted

AVERAGE, RESET = "average", "reset"
SYNCHRONOUS, ASYNCHRONOUS = "synchronous", "asynchronous"
CORRECTED, KEPT = "corrected", "kept"
PROBE_STEPS = 16
_MOST_ROUNDS = 10_000
_MOST_PROCESSORS = 100_000
SLOWEST, FASTEST = 0.01, 100.0


@dataclass(frozen=True)
class StrategyKind:
    """A strategy as callers name it.

    Attributes:
        parameters: of ``strategy_params``.
        example: of ``strategy_params``; empty where there are none.
    """

    name: str
    parameters: tuple[Argument, ...] = ()
    example: str = ""

    @property
    def hint(self) -> str:
        """The call with parameters that are allowed."""
        if not self.example:
            return f"leave strategy_params out: strategy := {self.name!r} has none"
        return f"strategy := {self.name!r}, strategy_params := {self.example!r}"


_ROUNDS = whole("rounds", 1, 1, high=_MOST_ROUNDS)
_WARM_UP = whole("warm_up", 1, 0, high=1_000_000)
_BITS = whole("bits", 32, None)
_PROCESSORS = whole("processors", None, 1, high=_MOST_PROCESSORS)
_GROUP = whole("group", None, 1, high=_MOST_PROCESSORS)
_NEIGHBOURS = whole("neighbours", None, 1, high=_MOST_PROCESSORS)
_SPEED = number("speed", None, SLOWEST, high=FASTEST)
_CONVOLUTION_SPEED = number("convolution_speed", None, SLOWEST, high=FASTEST)
_MEASURED_HOPS = whole("measured_hops", 0, 0, high=1_000_000)
_ALLOWED_BITS = (32, 16, 8)
_MODE = choice("mode", SYNCHRONOUS, SYNCHRONOUS, ASYNCHRONOUS)
_GROUPS = whole("groups", None, 1, high=100_000)
_MOMENTUM = choice("momentum", CORRECTED, CORRECTED, KEPT)
_PROBE_STEPS = whole("probe_steps", PROBE_STEPS, 2, high=10_000)
KINDS: Mapping[str, StrategyKind] = MappingProxyType(
    {
        one.name: one
        for one in (
            StrategyKind(HOPPER),
            StrategyKind(ROTATION),
            StrategyKind(TASK),
            StrategyKind(
                AVERAGING,
                (_ROUNDS, choice("optimizer", AVERAGE, AVERAGE, RESET)),
                "rounds=4, optimizer=reset",
            ),
            StrategyKind(ALLREDUCE, (_ROUNDS,), "rounds=4"),
            StrategyKind(PIPE, (_ROUNDS, _WARM_UP, _BITS), "warm_up=2, bits=16"),
            StrategyKind(
                AUTO,
                (_PROCESSORS, _GROUP, _NEIGHBOURS, _SPEED, _CONVOLUTION_SPEED, _MEASURED_HOPS),
                "processors=4, group=2, convolution_speed=2.5",
            ),
            StrategyKind(PARAMETER_SERVER, (_ROUNDS, _MODE), "rounds=4, mode=asynchronous"),
            StrategyKind(
                GROUPS, (_ROUNDS, _GROUPS, _MOMENTUM, _PROBE_STEPS), "groups=2, momentum=kept"
            ),
        )
    }
)


@dataclass(frozen=True)
class ChosenStrategy:
    """A strategy with its parameters.

    Attributes:
        name: one of ``KINDS``.
        rounds: of an epoch.
        resets: whether optimizers begin each round anew.
        warm_up: epochs whose steps are not pipelined.
        bits: of a number of a gradient that is exchanged.
        processors: trainers that compute at the same time; None for as many as the server lets.
        group: the most workers that train a configuration together; None for as many as it takes.
        neighbours: partitions of one host, where those of a group may be on several.
        speeds: of the machine; unknown ones are measured where that is possible.
        asynchrony: of the workers of a round.
        text: the parameters that differ from the defaults, as they can be written.
    """

    name: str
    rounds: int = 1
    resets: bool = False
    warm_up: int = 0
    bits: int = 32
    processors: int | None = None
    group: int | None = None
    neighbours: int | None = None
    speeds: Speeds = field(default_factory=Speeds)
    asynchrony: Asynchrony = field(default_factory=Asynchrony)
    text: str = ""


def parse_strategy(name: str | None, params: str | None) -> ChosenStrategy:
    """A strategy as it was asked for.

    Args:
        name: of the strategy.
        params: such as ``rounds=4, optimizer=reset``; None or empty for the defaults.

    Raises:
        InvalidArgument: there is no such strategy, with the nearest right one; or a parameter is
            not one of its own, or out of bounds.
    """
    if not isinstance(name, str) or name not in KINDS:
        with hinted("strategy := 'hopper' is the default, 'auto' that of cerebro.cerebro_fit"):
            if not isinstance(name, str) or not name:
                got = "NULL" if name is None else shown(name)
                raise InvalidArgument(f"strategy: got {got}; allowed: {_listed(KINDS)}")
            raise unknown("strategy", "strategy", name, KINDS)
    with hinted(KINDS[name].hint):
        return _with_parameters(KINDS[name], params or "")


def _with_parameters(kind: StrategyKind, params: str) -> ChosenStrategy:
    """A strategy with the parameters of a text."""
    name, parsed = kind.name, parse_keywords(params, "strategy_params")
    given = {key: _bare(value) for key, value in parsed.items()}
    for key in given:
        if key not in {one.name for one in kind.parameters}:
            raise InvalidArgument(_not_its_own(kind, key))
    values = validated_arguments(kind.parameters, given, {}, f"strategy_params of {name}")
    found = with_defaults(kind.parameters, values)
    if found.get("bits", 32) not in _ALLOWED_BITS:
        raise InvalidArgument(
            f"strategy_params of {name}: got bits={found['bits']}; allowed: 32, 16 and 8"
        )
    return ChosenStrategy(
        name,
        rounds=found.get("rounds", 1),
        resets=found.get("optimizer") == RESET,
        warm_up=found.get("warm_up", 0),
        bits=found.get("bits", 32),
        processors=found.get("processors"),
        group=found.get("group"),
        neighbours=found.get("neighbours"),
        speeds=_speeds(name, found),
        asynchrony=_asynchrony(name, found),
        text=", ".join(f"{key}={value!r}" for key, value in values),
    )


def _speeds(name: str, found: Mapping[str, Any]) -> Speeds:
    """Speeds of the machine among the parameters of a strategy.

    Raises:
        InvalidArgument: hops are said to be measured, but no speed is given.
    """
    hops = found.get("measured_hops", 0)
    speeds = Speeds(found.get("convolution_speed"), found.get("speed"), hops)
    if hops and not speeds.are_known:
        raise InvalidArgument(
            f"strategy_params of {name}: got measured_hops={hops} without a speed; allowed: beside speed or "
            "convolution_speed, as cerebro.runs shows them of a run whose speeds were measured"
        )
    return speeds


def _asynchrony(name: str, found: Mapping[str, Any]) -> Asynchrony:
    """Groups, correction of the momentum and probes of a strategy.

    Raises:
        InvalidArgument: a parameter of probes beside a number of groups, or the other way round.
    """
    if name == PARAMETER_SERVER:
        return Asynchrony(groups=0 if found["mode"] == ASYNCHRONOUS else 1)
    if name != GROUPS:
        return Asynchrony()
    groups, is_corrected = found["groups"], found["momentum"] == CORRECTED
    if groups is None and not is_corrected:
        raise InvalidArgument(
            f"strategy_params of {name}: got momentum={KEPT} without groups; allowed: with a number of "
            "groups, as otherwise probes choose both"
        )
    if groups is not None and found["probe_steps"] != PROBE_STEPS:
        raise InvalidArgument(
            f"strategy_params of {name}: got probe_steps beside groups={groups}; allowed: one of them, as "
            "nothing is probed where the number of groups is given"
        )
    return Asynchrony(groups, is_corrected, 0 if groups is not None else found["probe_steps"])


def told(name: str, replicas: int, rounds: int, asynchrony: Asynchrony | None = None) -> str | None:
    """Description of a strategy for people; None of those that make the hops of a hopper side by side.

    Args:
        name: of the strategy.
        replicas: of each configuration, where it has several.
        rounds: of an epoch.
        asynchrony: of the workers of a round.
    """
    often = "once an epoch" if rounds == 1 else f"{rounds} times an epoch"
    if name == AVERAGING:
        return f"strategy {name}: {replicas} replicas of each configuration, averaged {often}"
    if asynchrony is not None and asynchrony.is_any:
        how = "each for itself"
        if asynchrony.groups != 0:
            how = f"in {asynchrony.groups or 'as many'} groups"
            how += " as probes choose" if asynchrony.groups is None else ""
        return (
            f"strategy {name}: {replicas} workers train a configuration, {how}, and the state is stored {often}; "
            "the order of updates is recorded"
        )
    if name in SIDE_BY_SIDE:
        return (
            f"strategy {name}: {replicas} workers train a configuration together, a step takes "
            f"{replicas} batches, and the state is stored {often}"
        )
    return f"strategy {name}: a worker trains whole configurations" if name == TASK else None


def _bare(value: object) -> object:
    """A word without quotes as a text."""
    is_word = isinstance(value, Call) and not (value.arguments or value.values)
    return value.name if is_word and isinstance(value, Call) else value


def _not_its_own(kind: StrategyKind, key: str) -> str:
    """Tells of a parameter that belongs to other strategies, or to none."""
    own = [one.name for one in kind.parameters]
    others = [one.name for one in KINDS.values() if key in [own.name for own in one.parameters]]
    allowed = ", ".join(own) or "none"
    message = f"strategy_params of {kind.name}: got {shown(key)}; allowed: {allowed}"
    if others:
        return f"{message}. It belongs to {_listed(others)}"
    near = nearest(key, own)
    return message if near.startswith("Allowed") else f"{message}. {near}"


def _listed(names: Any) -> str:
    return ", ".join(map(repr, names))
