"""The optimizers of Keras 3.15 that may be used, with every argument."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from cerebro_db.configs.arguments import Argument, Kind, flag, fraction, number, patterns, whole

__all__ = [
    "ARGUMENT_ALIASES",
    "DECAY",
    "OPTIMIZERS",
    "OPTIMIZER_MAP",
    "REFUSED_ARGUMENTS",
    "REFUSED_OPTIMIZERS",
    "Optimizer",
]


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
                number("momentum", 0.0, high=1.0),
                _EPSILON,
                flag("centered", False),
            ),
            _optimizer(
                "SGD",
                number("momentum", 0.0, high=1.0),
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
