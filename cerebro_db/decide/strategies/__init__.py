"""Strategies, by their names. A further one is a class in a module here, and a line of this list."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from cerebro_db.configs.arguments import nearest, unknown, validated_arguments
from cerebro_db.configs.grammar import Call, parse_keywords
from cerebro_db.configs.messages import shown
from cerebro_db.core.strategies import Strategy
from cerebro_db.decide.strategies.allreduce import AllReduce, Groups, ParameterServer, Pipe
from cerebro_db.decide.strategies.auto import Auto
from cerebro_db.decide.strategies.averaging import Averaging
from cerebro_db.decide.strategies.hopper import Hopper
from cerebro_db.decide.strategies.rotation import Rotation
from cerebro_db.decide.strategies.task import WholeTask
from cerebro_db.errors import InvalidArgument, hinted

STRATEGIES: Mapping[str, type[Strategy]] = MappingProxyType(
    {
        one.name: one
        for one in (
            Hopper, Rotation, WholeTask, Averaging, AllReduce, Pipe, Auto, ParameterServer, Groups,
        )
    }
)  # fmt: skip
DEFAULT, DEFAULT_OF_ONE = Hopper.name, Auto.name
# What the argument schedule may be, which is older than strategy.
SCHEDULES = (Hopper.name, Rotation.name)


def parse_strategy(name: str | None, params: str | None) -> Strategy:
    """The strategy that a caller wants, with its parameters.

    Args:
        name: of the strategy.
        params: such as ``rounds=4, optimizer=reset``; None or empty for the defaults.

    Raises:
        InvalidArgument: there is no such strategy, with the nearest right one; or a parameter is
            not one of its own, or out of bounds.
    """
    if not isinstance(name, str) or name not in STRATEGIES:
        with hinted("strategy := 'hopper' is the default, 'auto' that of cerebro.cerebro_fit"):
            if not isinstance(name, str) or not name:
                got = "NULL" if name is None else shown(name)
                raise InvalidArgument(f"strategy: got {got}; allowed: {listed(STRATEGIES)}")
            raise unknown("strategy", "strategy", name, STRATEGIES)
    with hinted(STRATEGIES[name].hint()):
        return _with_parameters(STRATEGIES[name], params or "")


def listed(names: Iterable[str]) -> str:
    """Names of strategies as they are written in messages."""
    return ", ".join(map(repr, names))


def _with_parameters(strategy: type[Strategy], params: str) -> Strategy:
    """A strategy with the parameters of a text."""
    parsed = parse_keywords(params, "strategy_params")
    given = {key: _bare(value) for key, value in parsed.items()}
    for key in given:
        if key not in _names(strategy):
            raise InvalidArgument(_not_its_own(strategy, key))
    what = f"strategy_params of {strategy.name}"
    chosen = strategy(**dict(validated_arguments(strategy.parameters(), given, {}, what)))
    chosen.check()
    return chosen


def _names(strategy: type[Strategy]) -> list[str]:
    return [one.name for one in strategy.parameters()]


def _bare(value: object) -> object:
    """A word without quotes as a text."""
    is_word = isinstance(value, Call) and not (value.arguments or value.values)
    return value.name if is_word and isinstance(value, Call) else value


def _not_its_own(strategy: type[Strategy], key: str) -> str:
    """Message for a parameter that belongs to other strategies, or to none."""
    own = _names(strategy)
    others = [one.name for one in STRATEGIES.values() if key in _names(one)]
    message = (
        f"strategy_params of {strategy.name}: got {shown(key)}; allowed: {', '.join(own) or 'none'}"
    )
    if others:
        return f"{message}. It belongs to {listed(others)}"
    near = nearest(key, own)
    return message if near.startswith("Allowed") else f"{message}. {near}"
