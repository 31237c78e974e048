"""The learning-rate schedules of Keras 3.15: names, arguments, and their parsing from calls."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from cerebro_db.configs.arguments import (
    Argument,
    Kind,
    flag,
    number,
    unknown,
    validated_arguments,
    whole,
)
from cerebro_db.configs.grammar import Call, named_values, parse_call
from cerebro_db.configs.messages import shown
from cerebro_db.errors import InvalidArgument

__all__ = ["SCHEDULES", "Schedule", "ScheduleSpec", "parse_schedule"]

_PREFIXES = tuple(
    f"{start}optimizers.schedules." for start in ("", "keras.", "tf.keras.", "tensorflow.keras.")
)


@dataclass(frozen=True)
class Schedule:
    """A schedule class and its arguments; so many of them may be given without their names."""

    name: str
    arguments: tuple[Argument, ...]
    by_place: int


@dataclass(frozen=True)
class ScheduleSpec:
    """A schedule and the arguments that differ from the defaults."""

    name: str
    arguments: tuple[tuple[str, Any], ...]

    def __repr__(self) -> str:
        """The text that it could have come from."""
        return repr(Call(self.name, self.arguments))


_START = number("initial_learning_rate", None, required=True)
_STEPS = whole("decay_steps", None, low=1, required=True)
_RATE = number("decay_rate", None, required=True)
_STAIRCASE = flag("staircase", False)
_ALPHA = number("alpha", 0.0)


def _schedule(name: str, *own: Argument, by_place: int | None = None) -> Schedule:
    return Schedule(name, own, len(own) if by_place is None else by_place)


SCHEDULES: Mapping[str, Schedule] = MappingProxyType(
    {
        schedule.name: schedule
        for schedule in (
            _schedule(
                "CosineDecay", _START, _STEPS, _ALPHA,
                number("warmup_target", None), whole("warmup_steps", 0), by_place=3,
            ),
            _schedule(
                "CosineDecayRestarts", _START, whole("first_decay_steps", None, low=1, required=True),
                number("t_mul", 2.0, low_open=True), number("m_mul", 1.0), _ALPHA,
            ),
            _schedule("ExponentialDecay", _START, _STEPS, _RATE, _STAIRCASE),
            _schedule("InverseTimeDecay", _START, _STEPS, _RATE, _STAIRCASE),
            _schedule(
                "PiecewiseConstantDecay",
                Argument("boundaries", Kind.INTS, low=0, required=True),
                Argument("values", Kind.FLOATS, low=0.0, required=True),
            ),
            _schedule(
                "PolynomialDecay", _START, _STEPS, number("end_learning_rate", 0.0001),
                number("power", 1.0), flag("cycle", False),
            ),
        )
    }
)  # fmt: skip
_NAMES = {name.lower(): name for name in SCHEDULES}


def parse_schedule(value: Call | str, what: str) -> ScheduleSpec:
    """Parses ``ExponentialDecay(0.01, 1000, decay_rate=0.9)``, as a call or as its text.

    Raises:
        InvalidArgument: it is no schedule, or an argument of it is wrong.
    """
    call = parse_call(value, what) if isinstance(value, str) else value
    name = call.name
    for prefix in _PREFIXES:
        name = name.removeprefix(prefix)
    if name.lower() not in _NAMES:
        raise unknown(what, "learning-rate schedule", call.name, SCHEDULES)
    schedule = SCHEDULES[_NAMES[name.lower()]]
    what = f"{what}: {schedule.name}"
    places = tuple(argument.name for argument in schedule.arguments[: schedule.by_place])
    given = named_values(call, places, what)
    spec = ScheduleSpec(schedule.name, validated_arguments(schedule.arguments, given, {}, what))
    if spec.name == "PiecewiseConstantDecay":
        _check_pieces(dict(spec.arguments), what)
    return spec


def _check_pieces(arguments: Mapping[str, Any], what: str) -> None:
    boundaries, values = (_tuple(arguments[name]) for name in ("boundaries", "values"))
    if len(values) != len(boundaries) + 1 or list(boundaries) != sorted(set(boundaries)):
        raise InvalidArgument(
            f"{what}: got boundaries={shown(list(boundaries))} and values={shown(list(values))}; allowed "
            "are boundaries that rise, and one value more than there are boundaries"
        )


def _tuple(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)
