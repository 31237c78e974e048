"""Keras architectures as JSON, written without importing Keras."""

from __future__ import annotations

import json
from typing import Any

Layer = dict[str, Any]


def mlp(shape: tuple[int, ...], *units: int, classes: int) -> str:
    """Dense layers of these sizes, and one unit a class."""
    flatten = [_layer("Flatten")] if len(shape) > 1 else []
    return _sequential(shape, *flatten, *map(_dense, units), _softmax(classes))


def cnn(shape: tuple[int, ...], filters: tuple[int, ...], units: int, classes: int) -> str:
    """Convolutions of 3 x 3, each with pooling, then a dense layer and one unit a class."""
    layers = []
    for count in filters:
        layers += [
            _layer("Conv2D", filters=count, kernel_size=[3, 3], activation="relu"),
            _layer("MaxPooling2D", pool_size=[2, 2]),
        ]
    return _sequential(shape, *layers, _layer("Flatten"), _dense(units), _softmax(classes))


def _sequential(shape: tuple[int, ...], *layers: Layer) -> str:
    first = _layer("InputLayer", batch_shape=[None, *shape])
    config = {"name": "model", "layers": [first, *layers]}
    return json.dumps({"module": "keras", "class_name": "Sequential", "config": config})


def _dense(units: int) -> Layer:
    return _layer("Dense", units=units, activation="relu")


def _softmax(classes: int) -> Layer:
    return _layer("Dense", units=classes, activation="softmax")


def _layer(class_name: str, **config: Any) -> Layer:
    return {"module": "keras.layers", "class_name": class_name, "config": config}
