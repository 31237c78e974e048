"""Nets that have a name, as JSON: those of keras.applications, without their weights."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import keras
from tensorflow.python.framework.func_graph import FuncGraph

from cerebro_db.configs.architectures.nets import LENET, check_net
from cerebro_db.errors import InvalidArgument
from cerebro_db.training.backends.tensorflow.sizes import without_values
from cerebro_db.training.causes import short


def net(name: str, shape: Sequence[int], classes: int, activation: str) -> str:
    """The JSON of a net; no memory is taken for its weights.

    Args:
        name: of the net.
        shape: of a row: height, width, channels.
        classes: numbers of its output.
        activation: of its output.

    Raises:
        InvalidArgument: there is no such net, or it does not take such rows.
    """
    name = check_net(name)
    with FuncGraph("net").as_default(), without_values():
        try:
            if name == LENET:
                model = _lenet(shape, classes, activation)
            else:
                model = _application(name, tuple(shape), classes, activation)
        except Exception as error:  # whatever Keras raises is about the shape
            raise InvalidArgument(
                f"model_arch: got {name} for rows of the shape {list(shape)}: {short(error)}"
            ) from None
        return str(model.to_json())


def _application(name: str, shape: tuple[int, ...], classes: int, activation: str) -> keras.Model:
    function = getattr(keras.applications, name)
    more: dict[str, Any] = {}
    if "include_preprocessing" in inspect.signature(function).parameters:
        more["include_preprocessing"] = False  # rows were normalised when they were packed
    return function(
        weights=None,
        input_shape=shape,
        classes=classes,
        classifier_activation=activation,
        **more,
    )


def _lenet(shape: Sequence[int], classes: int, activation: str) -> keras.Model:
    layers = keras.layers
    return keras.Sequential(
        [
            keras.Input(tuple(shape)),
            layers.Conv2D(6, 5, padding="same", activation="tanh"),
            layers.AveragePooling2D(2),
            layers.Conv2D(16, 5, activation="tanh"),
            layers.AveragePooling2D(2),
            layers.Flatten(),
            layers.Dense(120, activation="tanh"),
            layers.Dense(84, activation="tanh"),
            layers.Dense(classes, activation=activation),
        ],
        name="lenet5",
    )
