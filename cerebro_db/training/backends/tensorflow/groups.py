"""Weights with a learning rate or a weight decay of their own, in an optimizer of Keras."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import keras
import tensorflow as tf

from cerebro_db.configs.functions.optimizers import OptimizerSpec
from cerebro_db.configs.grids.groups import (
    PARAM_GROUPS,
    Groups,
    ParameterGroup,
    is_of,
    settings_of,
)
from cerebro_db.configs.messages import shown
from cerebro_db.errors import InvalidArgument
from cerebro_db.training.backends.tensorflow.models import plain_paths
from cerebro_db.training.backends.tensorflow.scalars import scalars_of

_MOST_SHOWN = 20
Settings = Mapping[str, ParameterGroup]


def attach(
    optimizer: Any,
    model: keras.Model,
    spec: OptimizerSpec,
    groups: Groups,
    architecture: Mapping[str, Any],
) -> None:
    """Let an optimizer train the weights of groups with what these have of their own.

    Raises:
        InvalidArgument: a pattern fits no weight that trains.
    """
    if not groups:
        return
    names = _names(model, architecture)
    _check(groups, list(names.values()))
    settings = {id_: settings_of(name, groups) for id_, name in names.items()}
    own = scalars_of(spec).learning_rate or 0.0
    factors = {id_: _factor(one, own) for id_, one in settings.items()}
    inner = optimizer.update_step

    def update_step(gradient: Any, variable: Any, learning_rate: Any) -> None:
        inner(gradient, variable, _scaled(learning_rate, factors[variable._unique_id]))

    optimizer.update_step = update_step
    optimizer._apply_weight_decay = _decay(optimizer, settings, factors)


def key(spec: OptimizerSpec, groups: Groups) -> Any:
    """Key of the groups that programs have to share: the factors are constants in them."""
    if not any(group.lr is not None for group in groups):
        return groups
    return groups, scalars_of(spec).learning_rate


def _names(model: keras.Model, architecture: Mapping[str, Any]) -> dict[str, str]:
    """Names of the weights that train, such as ``dense.bias``, by what TensorFlow knows them by."""
    plain = plain_paths(model, architecture)
    return {
        one.value._unique_id: plain[one.path].replace("/", ".") for one in model.trainable_variables
    }


def _check(groups: Groups, names: Sequence[str]) -> None:
    for group in groups:
        if names and not any(is_of(name, group.pattern) for name in names):
            raise InvalidArgument(
                f"{PARAM_GROUPS}: got {shown(group.pattern)}, which fits no weight that trains; there are "
                + ", ".join(names[:_MOST_SHOWN])
            )


def _factor(settings: ParameterGroup, own: float) -> float:
    if settings.lr is not None:
        return settings.lr / own if own else 0.0
    return 1.0 if settings.lr_factor is None else settings.lr_factor


def _scaled(rate: Any, factor: float) -> Any:
    return rate if factor == 1.0 else rate * factor


def _decay(optimizer: Any, settings: Settings, factors: Mapping[str, float]) -> Any:
    """Decay of weights in place of the optimizer's own."""

    def apply(variables: Sequence[Any]) -> None:
        for variable in (one.value for one in variables):
            own = settings[variable._unique_id].weight_decay
            strength = optimizer.weight_decay if own is None else own
            if strength is None:
                continue
            rate = _scaled(
                tf.cast(optimizer.learning_rate, variable.dtype), factors[variable._unique_id]
            )
            variable.assign_sub(variable * tf.cast(strength, variable.dtype) * rate)

    return apply
