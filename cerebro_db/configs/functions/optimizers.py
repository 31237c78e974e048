"""Optimizers and schedules of the learning rate: declared, parsed from calls, and as frozen values."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, ClassVar

from msgspec import structs

from cerebro_db.configs.arguments import (
    FLOATS,
    INTS,
    OBJECT,
    PATTERNS,
    Argument,
    Declaration,
    Declarations,
    Named,
    flag,
    fraction,
    number,
    unknown,
    validated_arguments,
    whole,
    with_defaults,
)
from cerebro_db.configs.grammar import Call, call_of, named_values, parse_call
from cerebro_db.configs.messages import shown
from cerebro_db.errors import InvalidArgument

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
) -> Declaration:
    """Own arguments come first; a default weight decay replaces the common one."""
    common = tuple(
        structs.replace(argument, default=weight_decay)
        if argument.name == "weight_decay"
        else argument
        for argument in _COMMON
    )
    # Zero is allowed: a learning rate of zero is how people freeze a configuration.
    arguments = (number("learning_rate", learning_rate), *own, *common)
    return Declaration(name, arguments, 1 + len(own) if by_place is None else by_place)


# Asynchronous updates bring momentum of their own, which a negative one takes back.
_MOMENTUM = number("momentum", 0.0, low=-1.0, high=1.0, low_open=True)
OPTIMIZERS = Declarations(
    "optimizers",
    "optimizer",
    (
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
            Argument("exclude_layers", PATTERNS, optional=True),
            weight_decay=0.004,
            by_place=5,
        ),
        Declaration(
            "MultiOptimizer",
            (Argument(OPTIMIZER_MAP, OBJECT, required=True), _LOSS_SCALE),
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
    ),
    {
        "LossScaleOptimizer": "it is put around the optimizer by itself where layers compute in float16",
        "Optimizer": "it is the abstract base class",
    },
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


_START = number("initial_learning_rate", None, required=True)
_STEPS = whole("decay_steps", None, low=1, required=True)
_RATE = number("decay_rate", None, required=True)
_STAIRCASE = flag("staircase", False)
_ALPHA = number("alpha", 0.0)


def _declared(name: str, *own: Argument, by_place: int | None = None) -> Declaration:
    return Declaration(name, own, len(own) if by_place is None else by_place)


SCHEDULES = Declarations(
    "optimizers.schedules",
    "learning-rate schedule",
    (
            _declared(
                "CosineDecay", _START, _STEPS, _ALPHA,
                number("warmup_target", None), whole("warmup_steps", 0), by_place=3,
            ),
            _declared(
                "CosineDecayRestarts", _START, whole("first_decay_steps", None, low=1, required=True),
                number("t_mul", 2.0, low_open=True), number("m_mul", 1.0), _ALPHA,
            ),
            _declared("ExponentialDecay", _START, _STEPS, _RATE, _STAIRCASE),
            _declared("InverseTimeDecay", _START, _STEPS, _RATE, _STAIRCASE),
            _declared(
                "PiecewiseConstantDecay",
                Argument("boundaries", INTS, low=0, required=True),
                Argument("values", FLOATS, low=0.0, required=True),
            ),
            _declared(
                "PolynomialDecay", _START, _STEPS, number("end_learning_rate", 0.0001),
                number("power", 1.0), flag("cycle", False),
            ),
    ),
)  # fmt: skip


class ScheduleSpec(Named, frozen=True):
    """A schedule of Keras, or a registered function, with the arguments that differ from the defaults."""

    declared: ClassVar = SCHEDULES

    def __repr__(self) -> str:
        """The text that it could have come from."""
        return repr(Call(self.name, self.arguments))


def parse_schedule(value: Call | str, what: str) -> ScheduleSpec:
    """Parse ``ExponentialDecay(0.01, 1000, decay_rate=0.9)``, as a call or as its text.

    Raises:
        InvalidArgument: it is no schedule, or an argument of it is wrong.
    """
    call = parse_call(value, what) if isinstance(value, str) else value
    schedule = SCHEDULES.find(call.name, what)
    what = f"{what}: {schedule.name}"
    spec = ScheduleSpec(schedule.name, schedule.validated(call, what))
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


_MAP = "OptimizerMap"
_MAP_NAMES = frozenset(f"{start}{_MAP}".lower() for start in OPTIMIZERS.prefixes)
_MAP_PLACES = ("default_optimizer", OPTIMIZER_MAP)
_EXAMPLE = f"{_MAP}(Adam(0.001), {{'dense/.*': SGD(0.1)}})"
_PATTERN = Argument(f"a key of {OPTIMIZER_MAP}", PATTERNS)


class OptimizerSpec(Named, frozen=True):
    """An optimizer: its class in Keras and the arguments that differ from the defaults.

    Attributes:
        parts: of a MultiOptimizer: which optimizer trains the weights of a pattern of paths; the
            last one, without a pattern, trains the others.
    """

    declared: ClassVar = OPTIMIZERS

    parts: tuple[tuple[str | None, OptimizerSpec], ...] = ()

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
        return bool(self.all_arguments().get("use_ema"))


def parse_optimizer(value: object, what: str = "optimizer") -> OptimizerSpec:
    """Parse ``'Adam'``, ``'Adam(lr=0.1)'`` or the same without quotes."""
    call = call_of(value, "optimizer", what)
    entry = OPTIMIZERS.find(call.name, what)
    what = f"{what}: {entry.name}"
    given = entry.given(call, what)
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


def _schedule(entry: Declaration, given: dict[str, Any], what: str) -> ScheduleSpec | None:
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
