"""Optimizers and schedules of the learning rate that may be named, and their arguments."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from cerebro_db.configs.arguments import (
    Argument,
    Kind,
    flag,
    fraction,
    number,
    patterns,
    unknown,
    validated_arguments,
    whole,
)
from cerebro_db.configs.grammar import Call, named_values, parse_call
from cerebro_db.configs.messages import shown
from cerebro_db.errors import InvalidArgument


@dataclass(frozen=True)
class Optimizer:
    """An optimizer class and its arguments; so many of them may be given without their names."""

    name: str
    arguments: tuple[Argument, ...]
    by_place: int


OPTIMIZER_MAP = "optimizer_map"
_LOSS_SCALE = number("loss_scale_factor", None, low_open=True)
_COMMON = (
    number("weight_decay", None),
    number("clipnorm", None, low_open=True),
    number("clipvalue", None, low_open=True),
    number("global_clipnorm", None, low_open=True),
    _LOSS_SCALE,
    whole("gradient_accumulation_steps", None, low=2),
    flag("use_ema", False),
    number("ema_momentum", 0.99, high=1.0),
    whole("ema_overwrite_frequency", None, low=1),
)
_EPSILON = number("epsilon", 1e-7)
_BETAS = (fraction("beta_1", 0.9), fraction("beta_2", 0.999))


def _optimizer(
    name: str,
    *own: Argument,
    learning_rate: float = 0.001,
    weight_decay: float | None = None,
    by_place: int | None = None,
) -> Optimizer:
    """Own arguments come first; a default weight decay replaces the common one."""
    common = tuple(
        replace(argument, default=weight_decay) if argument.name == "weight_decay" else argument
        for argument in _COMMON
    )
    # Zero is allowed: a learning rate of zero is how people freeze a configuration.
    arguments = (number("learning_rate", learning_rate), *own, *common)
    return Optimizer(name, arguments, 1 + len(own) if by_place is None else by_place)


# Asynchronous updates bring momentum of their own, which a negative one takes back.
_MOMENTUM = number("momentum", 0.0, low=-1.0, high=1.0, low_open=True)
OPTIMIZERS: Mapping[str, Optimizer] = MappingProxyType(
    {
        optimizer.name: optimizer
        for optimizer in (
            _optimizer("Adadelta", fraction("rho", 0.95), _EPSILON),
            _optimizer(
                "Adafactor",
                number("beta_2_decay", -0.8, low=None, high=0.0),
                number("epsilon_1", 1e-30),
                number("epsilon_2", 1e-3),
                number("clip_threshold", 1.0, low_open=True),
                flag("relative_step", True),
            ),
            _optimizer("Adagrad", number("initial_accumulator_value", 0.1), _EPSILON),
            _optimizer("Adam", *_BETAS, _EPSILON, flag("amsgrad", False)),
            _optimizer(
                "AdamW", *_BETAS, _EPSILON, flag("amsgrad", False), weight_decay=0.004, by_place=1
            ),
            _optimizer("Adamax", *_BETAS, _EPSILON),
            _optimizer(
                "Ftrl",
                number("learning_rate_power", -0.5, low=None, high=0.0),
                number("initial_accumulator_value", 0.1),
                number("l1_regularization_strength", 0.0),
                number("l2_regularization_strength", 0.0),
                number("l2_shrinkage_regularization_strength", 0.0),
                number("beta", 0.0),
            ),
            _optimizer("Lamb", *_BETAS, _EPSILON),
            _optimizer("Lion", fraction("beta_1", 0.9, low_open=True), fraction("beta_2", 0.99)),
            _optimizer(
                "Muon",
                fraction("adam_beta_1", 0.9),
                fraction("adam_beta_2", 0.999),
                number("adam_weight_decay", 0.004, optional=True),
                _EPSILON,
                number("muon_a", 3.4445, low=None),
                number("muon_b", -4.775, low=None),
                number("muon_c", 2.0315, low=None),
                number("adam_lr_ratio", 1.0),
                number("momentum", 0.95, high=1.0),
                whole("ns_steps", 5, low=1, high=100),
                flag("nesterov", True),
                number("rms_rate", 0.2, optional=True),
                flag("exclude_embeddings", True),
                patterns("exclude_layers"),
                weight_decay=0.004,
                by_place=5,
            ),
            Optimizer(
                "MultiOptimizer",
                (Argument(OPTIMIZER_MAP, Kind.OBJECT, required=True), _LOSS_SCALE),
                by_place=2,
            ),
            _optimizer("Nadam", *_BETAS, _EPSILON),
            _optimizer(
                "RMSprop",
                fraction("rho", 0.9),
                _MOMENTUM,
                _EPSILON,
                flag("centered", False),
            ),
            _optimizer(
                "SGD",
                _MOMENTUM,
                flag("nesterov", False),
                learning_rate=0.01,
            ),
            _optimizer(
                "ScheduleFreeAdamW",
                *_BETAS,
                number("epsilon", 1e-8),
                whole("warmup_steps", 0),
                learning_rate=0.0025,
            ),
        )
    }
)
REFUSED_OPTIMIZERS: Mapping[str, str] = MappingProxyType(
    {
        "LossScaleOptimizer": "it is put around the optimizer by itself where layers compute in float16",
        "Optimizer": "it is the abstract base class",
    }
)
# Names of Keras 2, and so of MADlib, for arguments of today.
ARGUMENT_ALIASES: Mapping[str, str] = MappingProxyType({"lr": "learning_rate"})
# Keras 2 divided the learning rate by 1 + decay * steps, which is InverseTimeDecay.
DECAY = number("decay", None)
REFUSED_ARGUMENTS: Mapping[str, str] = MappingProxyType(
    {
        "name": "the name of an optimizer has no effect",
        "schedule_decay": "Keras 3 has no such argument",
    }
)
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
