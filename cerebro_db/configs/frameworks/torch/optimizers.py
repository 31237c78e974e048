"""Optimizers of ``torch.optim``, with its arguments and defaults; names of arguments that Keras has are taken, too.

What is parsed holds all arguments, those of the defaults too: the same name has other defaults in Keras.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cerebro_db.configs.arguments import (
    FLOATS,
    Argument,
    Declaration,
    Declarations,
    flag,
    fraction,
    number,
    validated_arguments,
    whole,
    with_defaults,
)
from cerebro_db.configs.functions.optimizers import OptimizerSpec
from cerebro_db.configs.functions.torch_schedules import parse_any_schedule
from cerebro_db.configs.grammar import Call, call_of
from cerebro_db.configs.grids.groups import PARAM_GROUPS, Groups, check_rates
from cerebro_db.configs.messages import shown
from cerebro_db.errors import InvalidArgument

_PREFIXES = ("torch.optim.", "optim.")
RATE, _STEPPING = "learning_rate", "Rprop"
_CLIPS = ("clipnorm", "clipvalue", "global_clipnorm")
_COMMON = (
    *(number(name, None, low_open=True) for name in _CLIPS),
    flag("use_ema", False),
    number("ema_momentum", 0.99, high=1.0),
    whole("ema_overwrite_frequency", None, low=1),
)
_DECAY, _MAXIMIZE = number("weight_decay", 0.0), flag("maximize", False)
_BETAS = (fraction("beta_1", 0.9), fraction("beta_2", 0.999))
_EPSILON = number("epsilon", 1e-8)
_COUPLED = flag("decoupled_weight_decay", False)


def _optimizer(name: str, rate: float, *own: Argument, by_place: int = 1) -> Declaration:
    return Declaration(name, (number(RATE, rate), *own, *_COMMON), by_place)


def _pair(name: str, default: tuple[float, float]) -> Argument:
    return Argument(name, FLOATS, default, 0.0)


TORCH_OPTIMIZERS = Declarations(
    "optim",
    "optimizer",
    (
        _optimizer("Adadelta", 1.0, number("rho", 0.9, high=1.0), number("epsilon", 1e-6), _DECAY, _MAXIMIZE),
        _optimizer(
            "Adagrad", 0.01, number("lr_decay", 0.0), _DECAY,
            number("initial_accumulator_value", 0.0), number("epsilon", 1e-10), _MAXIMIZE,
        ),
        _optimizer("Adam", 0.001, *_BETAS, _EPSILON, _DECAY, flag("amsgrad", False), _MAXIMIZE),
        _optimizer(
            "AdamW", 0.001, *_BETAS, _EPSILON, number("weight_decay", 0.01), flag("amsgrad", False), _MAXIMIZE
        ),
        _optimizer("Adamax", 0.002, *_BETAS, _EPSILON, _DECAY, _MAXIMIZE),
        _optimizer(
            "NAdam", 0.002, *_BETAS, _EPSILON, _DECAY, number("momentum_decay", 0.004), _COUPLED, _MAXIMIZE
        ),
        _optimizer("RAdam", 0.001, *_BETAS, _EPSILON, _DECAY, _COUPLED, _MAXIMIZE),
        _optimizer(
            "RMSprop", 0.01, number("alpha", 0.99, high=1.0), _EPSILON, _DECAY, number("momentum", 0.0),
            flag("centered", False), _MAXIMIZE,
        ),
        _optimizer("Rprop", 0.01, _pair("etas", (0.5, 1.2)), _pair("step_sizes", (1e-6, 50.0)), _MAXIMIZE),
        _optimizer(
            "SGD", 0.001, number("momentum", 0.0, low=-1.0, low_open=True), number("dampening", 0.0), _DECAY,
            flag("nesterov", False), _MAXIMIZE, by_place=3,
        ),
    ),
    {
        "ASGD": "its averages are no part of a state",
        "Adafactor": "it keeps factors, which states do not",
        "LBFGS": "it computes the loss several times in a step",
        "Muon": "it trains matrices alone",
        "SparseAdam": "gradients are dense here",
    },
)  # fmt: skip
# Of torch and of Keras 2.
_ALIASES: Mapping[str, str] = {"lr": RATE, "eps": "epsilon"}
_BETAS_NAME = "betas"
_PAIRS = Argument(_BETAS_NAME, FLOATS, (0.9, 0.999), 0.0, 1.0, high_open=True)
_OTHER_NAMES: Mapping[str, Mapping[str, str]] = {"RMSprop": {"rho": "alpha"}}


def bare(name: str) -> str:
    """A name without the modules of torch before it."""
    for prefix in _PREFIXES:
        if name.startswith(prefix):
            return name.removeprefix(prefix)
    return name


def _aliases(entry: Declaration) -> dict[str, str]:
    return {**_ALIASES, **_OTHER_NAMES.get(entry.name, {})}


def arguments_of(entry: Declaration) -> dict[str, Argument]:
    """The arguments of an optimizer by every name that they have."""
    found = {argument.name: argument for argument in entry.arguments}
    others = _aliases(entry)
    found |= {alias: found[name] for alias, name in others.items() if name in found}
    return found | ({_BETAS_NAME: _PAIRS} if "beta_1" in found else {})


def parse_torch_optimizer(value: object, what: str = "optimizer") -> OptimizerSpec:
    """Parse ``'Adam'``, ``'torch.optim.SGD(lr=0.1, momentum=0.9)'`` or the same without quotes.

    Raises:
        InvalidArgument: torch has none such, or not such an argument.
    """
    call = call_of(value, "optimizer", what)
    entry = TORCH_OPTIMIZERS.find(bare(call.name), what)
    what = f"{what}: {entry.name}"
    given = _without_betas(entry, entry.given(call, what), what)
    schedule = _schedule(given, what)
    aliases = _aliases(entry)
    arguments = with_defaults(
        entry.arguments, validated_arguments(entry.arguments, given, aliases, what)
    )
    _check(entry, arguments, what)
    if schedule is not None:
        arguments = {RATE: schedule, **{k: v for k, v in arguments.items() if k != RATE}}
    return OptimizerSpec(entry.name, tuple(arguments.items()))


def _without_betas(entry: Declaration, given: dict[str, Any], what: str) -> dict[str, Any]:
    """Given arguments with the pair that torch has as two."""
    if _BETAS_NAME not in given or "beta_1" not in arguments_of(entry):
        return given
    pair = _PAIRS.validated(given[_BETAS_NAME], what)
    if not isinstance(pair, tuple) or len(pair) != 2 or {"beta_1", "beta_2"} & set(given):
        raise InvalidArgument(
            f"{what}: got betas={shown(given[_BETAS_NAME])}; it must be a pair such as (0.9, 0.999), without beta_1 and "
            "beta_2 beside it"
        )
    others = {name: value for name, value in given.items() if name != _BETAS_NAME}
    return others | dict(zip(("beta_1", "beta_2"), pair, strict=True))


def _schedule(given: dict[str, Any], what: str) -> Any:
    """Takes the schedule of the learning rate out of given arguments."""
    names = [name for name in (RATE, "lr") if name in given]
    if len(names) != 1 or not isinstance(given[names[0]], Call | str):
        return None
    return parse_any_schedule(given.pop(names[0]), f"{what}: {names[0]}")


def check_groups(spec: OptimizerSpec, groups: Groups) -> None:
    """Refuse groups of parameters with what the optimizer does not have.

    Raises:
        InvalidArgument: naming it.
    """
    if groups and spec.name == _STEPPING:  # whose steps begin with the rate, and grow by themselves
        raise InvalidArgument(f"{PARAM_GROUPS}: got the optimizer {spec.name}; allowed: others")
    check_rates(spec, groups)


def _check(entry: Declaration, arguments: Mapping[str, Any], what: str) -> None:
    clips = [name for name in _CLIPS if arguments[name] is not None]
    if len(clips) > 1:
        raise InvalidArgument(f"{what}: got {' and '.join(clips)}; at most one is allowed")
    if arguments.get("nesterov") and not (
        arguments["momentum"] > 0 and arguments["dampening"] == 0
    ):
        raise InvalidArgument(
            f"{what}: got nesterov=True with momentum={arguments['momentum']} and dampening={arguments['dampening']}; "
            "allowed: a momentum above 0 and no dampening"
        )
    for argument in entry.arguments:
        value = arguments[argument.name]
        if isinstance(argument.default, tuple) and (
            not isinstance(value, tuple) or len(value) != 2
        ):
            raise InvalidArgument(f"{what}: got {argument.name}={shown(value)}; it must be a pair")
