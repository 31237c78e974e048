"""Architectures that nobody has to write: multilayer perceptrons, and nets that have a name.

Their JSON may leave open what a packed table tells: ``"batch_shape": null`` of an input, and ``"units":
null`` of a layer that makes an output.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from cerebro_db.configs.architectures.limits import refuse
from cerebro_db.configs.architectures.names import ACTIVATIONS
from cerebro_db.configs.arguments import nearest
from cerebro_db.configs.messages import check_range, shown
from cerebro_db.errors import InvalidArgument

LENET = "LeNet5"
# Functions of keras.applications, which tell the weights of none of them here.
APPLICATIONS = (
    "ConvNeXtBase", "ConvNeXtLarge", "ConvNeXtSmall", "ConvNeXtTiny", "ConvNeXtXLarge", "DenseNet121",
    "DenseNet169", "DenseNet201", "EfficientNetB0", "EfficientNetB1", "EfficientNetB2",
    "EfficientNetB3", "EfficientNetB4", "EfficientNetB5", "EfficientNetB6", "EfficientNetB7",
    "EfficientNetV2B0", "EfficientNetV2B1", "EfficientNetV2B2", "EfficientNetV2B3", "EfficientNetV2L",
    "EfficientNetV2M", "EfficientNetV2S", "InceptionResNetV2", "InceptionV3", "MobileNet",
    "MobileNetV2", "MobileNetV3Large", "MobileNetV3Small", "NASNetLarge", "NASNetMobile", "ResNet101",
    "ResNet101V2", "ResNet152", "ResNet152V2", "ResNet50", "ResNet50V2", "VGG16", "VGG19", "Xception",
)  # fmt: skip
NETS = (LENET, *APPLICATIONS)
_MOST_HIDDEN = 100
_MOST_UNITS = 10_000_000
_MARK = "cerebro_open"  # how the name of the last layer begins whose activation is open, too


@dataclass(frozen=True)
class DataShape:
    """Shapes of a packed table that a model must have.

    Attributes:
        table: its name, for messages.
        inputs: shapes of rows.
        units: numbers of each output: of classes, or of what a target has.
        classes: whether each output tells classes.
    """

    table: str
    inputs: tuple[tuple[int, ...], ...]
    units: tuple[int, ...]
    classes: tuple[bool, ...]


def is_name(text: str | None) -> bool:
    """True if an architecture is named, and not written as JSON."""
    return text is not None and text.strip().isidentifier()


def check_net(name: str) -> str:
    """The name of a net as it is written here.

    Raises:
        InvalidArgument: there is none of that name.
    """
    by_lower = {one.lower(): one for one in NETS}
    found = by_lower.get(name.strip().lower())
    if found is None:
        raise InvalidArgument(
            f"model_arch: got {shown(name)}; allowed: the JSON of a model, or the name of a net",
            hint=nearest(name[:80], NETS),
        )
    return found


def mlp(
    inputs: int | None,
    hidden: Sequence[int | None] | None,
    outputs: int | None,
    activation: str | None,
    dropout: float | None,
    output_activation: str | None,
) -> str:
    """The JSON of a multilayer perceptron.

    Args:
        inputs: numbers of a row; None to take the shape of a packed table.
        hidden: units of each hidden layer.
        outputs: numbers of the output; None to take classes, or sizes, of a packed table.
        activation: of the hidden layers.
        dropout: rate of the dropout after each of them; 0 for none.
        output_activation: None for softmax where there are several outputs, or classes.
    """
    check_range("inputs", inputs, 1, _MOST_UNITS)
    check_range("outputs", outputs, 1, _MOST_UNITS)
    units = list(hidden or ())
    if len(units) > _MOST_HIDDEN:
        raise InvalidArgument(f"hidden: got {len(units)} layers; allowed: up to {_MOST_HIDDEN}")
    for one in units:
        if isinstance(one, list):
            raise InvalidArgument(
                "hidden: got an array of several dimensions; allowed: one number for each layer"
            )
        check_range("hidden", one, 1, _MOST_UNITS, optional=False)
    check_activation("activation", activation)
    if output_activation is not None:
        check_activation("output_activation", output_activation)
    rate = check_dropout(0.0 if dropout is None else float(dropout))
    layers = [
        *_first(inputs),
        *_hidden(units, activation, rate),
        _output(outputs, output_activation),
    ]
    return json.dumps(
        {
            "module": "keras",
            "class_name": "Sequential",
            "config": {"name": "mlp", "layers": layers},
            "registered_name": None,
        }
    )


def _first(inputs: int | None) -> list[dict[str, Any]]:
    if inputs is None:  # rows may be of any shape
        return [_layer("InputLayer", "rows", batch_shape=None), _layer("Flatten", "flat")]
    return [_layer("InputLayer", "rows", batch_shape=[None, inputs])]


def _hidden(
    units: Sequence[int | None], activation: str | None, dropout: float
) -> Iterator[dict[str, Any]]:
    for number, one in enumerate(units, start=1):
        yield _layer("Dense", f"hidden_{number}", units=one, activation=activation)
        if dropout:
            yield _layer("Dropout", f"dropout_{number}", rate=dropout)


def _output(units: int | None, activation: str | None) -> dict[str, Any]:
    if activation is None and units is None:
        return _layer("Dense", _MARK, units=None, activation=None)
    if activation is None:
        activation = "linear" if units == 1 else "softmax"
    return _layer("Dense", "outputs", units=units, activation=activation)


def check_kind(kind: str | None, allowed: Sequence[str]) -> None:
    """Refuse a kind of nets that there is not.

    Raises:
        InvalidArgument: with the kinds that there are.
    """
    if kind not in allowed:
        raise InvalidArgument(
            f"kind: got {shown(kind)}; allowed: {', '.join(map(repr, allowed))}",
            hint=nearest(str(kind)[:80], allowed),
        )


def check_dropout(rate: float | None) -> float:
    """The rate of a dropout.

    Raises:
        InvalidArgument: it is NULL, below 0, or not below 1.
    """
    if rate is None or not 0 <= rate < 1:
        raise InvalidArgument(f"dropout: got {rate}; it must be a number from 0 below 1")
    return rate


def check_activation(name: str, value: str | None) -> None:
    """Refuse what is no activation.

    Args:
        name: of the argument.
        value: of it.

    Raises:
        InvalidArgument: it is neither one of Keras nor ``custom.name``.
    """
    custom = value is not None and value.startswith("custom.")
    if value is None or not (value in ACTIVATIONS or custom):
        got = "NULL" if value is None else shown(value)
        raise InvalidArgument(
            f"{name}: got {got}; allowed: an activation of Keras, or custom.name",
            hint=nearest(str(value)[:80], ACTIVATIONS),
        )


def _layer(class_name: str, name: str, **config: Any) -> dict[str, Any]:
    return {
        "module": "keras.layers",
        "class_name": class_name,
        "config": {"name": name, **config},
        "registered_name": None,
    }


def is_open(config: Any) -> bool:
    """True if the JSON of a model leaves a shape open."""
    return bool(_open_inputs(config) or _open_outputs(config))


def filled(config: dict[str, Any], data: DataShape) -> dict[str, Any]:
    """A copy in which what is left open is what a packed table tells.

    Raises:
        InvalidArchitecture: it has not as many inputs or outputs that are open, or all of them.
    """
    changed = copy.deepcopy(config)
    inputs, outputs = _inputs(changed), _open_outputs(changed)
    if any(map(_is_open_input, inputs)):
        _check_count("inputs", len(inputs), len(data.inputs), data)
        for layer, shape in zip(inputs, data.inputs, strict=True):
            _fill_input(layer["config"], shape, data)
    if outputs:
        _check_count("open outputs", len(outputs), len(data.units), data)
        for layer, units, classes in zip(outputs, data.units, data.classes, strict=True):
            layer["config"]["units"] = units
            if layer["config"].get("name") == _MARK:
                layer["config"] |= {
                    "name": "outputs",
                    "activation": "softmax" if classes else "linear",
                }
    return changed


def _check_count(what: str, found: int, wanted: int, data: DataShape) -> None:
    if found != wanted:
        refuse(f"got {found} {what}; {data.table} has {wanted}")


def _fill_input(config: dict[str, Any], shape: tuple[int, ...], data: DataShape) -> None:
    given = config.get("batch_shape")
    if given is None:
        config["batch_shape"] = [None, *shape]
        return
    if len(given) != len(shape) + 1:
        refuse(f"got an input of the shape {given[1:]}; {data.table} has rows of {list(shape)}")
    config["batch_shape"] = [
        given[0],
        *(own if one is None else one for one, own in zip(given[1:], shape, strict=True)),
    ]


def _layers(config: Any) -> list[dict[str, Any]]:
    inner = config.get("config") if isinstance(config, dict) else None
    layers = inner.get("layers") if isinstance(inner, dict) else None
    return [
        layer
        for layer in (layers if isinstance(layers, list) else ())
        if isinstance(layer, dict) and isinstance(layer.get("config"), dict)
    ]


def _inputs(config: Any) -> list[dict[str, Any]]:
    """Its input layers, in the order of its inputs."""
    found = [layer for layer in _layers(config) if layer.get("class_name") == "InputLayer"]
    ends = config["config"].get("input_layers") if found else None
    ends = [ends[name] for name in sorted(ends)] if isinstance(ends, dict) else ends
    order = [end[0] for end in ends or () if isinstance(end, list) and end]
    named = {layer["config"].get("name"): layer for layer in found}
    if len(order) == len(found) and set(order) == set(named):
        return [named[name] for name in order]
    return found


def _is_open_input(layer: dict[str, Any]) -> bool:
    shape = layer["config"].get("batch_shape", ())  # JSON of Keras 2 has it under another name
    return shape is None or (isinstance(shape, list) and None in shape[1:])


def _open_inputs(config: Any) -> list[dict[str, Any]]:
    return [layer for layer in _inputs(config) if _is_open_input(layer)]


def _open_outputs(config: Any) -> list[dict[str, Any]]:
    return [
        layer
        for layer in _layers(config)
        if layer.get("class_name") == "Dense" and layer["config"].get("units", 0) is None
    ]
