"""The strategies of a run: their names and parameters, with defaults and bounds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from cerebro_db.configs.arguments import (
    Argument,
    choice,
    nearest,
    unknown,
    validated_arguments,
    whole,
    with_defaults,
)
from cerebro_db.configs.grammar import Call, parse_keywords
from cerebro_db.configs.messages import shown
from cerebro_db.core.spec import ALLREDUCE, AVERAGING, HOPPER, ROTATION, TASK
from cerebro_db.errors import InvalidArgument, hinted

AVERAGE, RESET = "average", "reset"
_MOST_ROUNDS = 10_000


@dataclass(frozen=True)
class StrategyKind:
    """A strategy as callers name it.

    Attributes:
        parameters: of ``strategy_params``.
    """

    name: str
    parameters: tuple[Argument, ...] = ()


_ROUNDS = whole("rounds", 1, 1, high=_MOST_ROUNDS)
KINDS: Mapping[str, StrategyKind] = MappingProxyType(
    {
        one.name: one
        for one in (
            StrategyKind(HOPPER),
            StrategyKind(ROTATION),
            StrategyKind(TASK),
            StrategyKind(AVERAGING, (_ROUNDS, choice("optimizer", AVERAGE, AVERAGE, RESET))),
            StrategyKind(ALLREDUCE, (_ROUNDS,)),
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
        text: the parameters that differ from the defaults, as they can be written.
    """

    name: str
    rounds: int = 1
    resets: bool = False
    text: str = ""


@hinted("strategy := 'averaging', strategy_params := 'rounds=4, optimizer=reset'")
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
        if not isinstance(name, str) or not name:
            got = "NULL" if name is None else shown(name)
            raise InvalidArgument(f"strategy: got {got}; allowed: {_listed(KINDS)}")
        raise unknown("strategy", "strategy", name, KINDS)
    kind, given = KINDS[name], parse_keywords(params or "", "strategy_params")
    given = {key: _bare(value) for key, value in given.items()}
    for key in given:
        if key not in {one.name for one in kind.parameters}:
            raise InvalidArgument(_not_its_own(kind, key))
    values = validated_arguments(kind.parameters, given, {}, f"strategy_params of {name}")
    found = with_defaults(kind.parameters, values)
    return ChosenStrategy(
        name,
        rounds=found.get("rounds", 1),
        resets=found.get("optimizer") == RESET,
        text=", ".join(f"{key}={value!r}" for key, value in values),
    )


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
    return f"{message}. {nearest(key, own)}" if own else message


def _listed(names: Any) -> str:
    return ", ".join(map(repr, names))
