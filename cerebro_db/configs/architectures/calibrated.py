"""Nets whose probabilities are calibrated: a fixed scale between the last weights and the last activation."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

from cerebro_db.errors import InvalidArchitecture

SOFTMAX, SIGMOID = "softmax", "sigmoid"
# Layers whose outputs are means of probabilities, and what is added to these so that they have a logarithm.
_MEANS, _LEAST, _STEP = ("GlobalAveragePooling1D", "Average"), 1e-12, 1.2e-7
_NUMPY = "keras.src.ops.numpy"
_ENDINGS = (
    "allowed: a net that ends in a Dense layer or an Activation of softmax, or of sigmoid with one output, in a mean of "
    "such, or one whose loss has from_logits=True"
)
Config = dict[str, Any]


def without_activation(architecture: Config) -> tuple[Config, str]:
    """A net that ends in logits, and the activation that makes probabilities of these.

    Args:
        architecture: a checked net of one output that is probabilities.

    Raises:
        InvalidArchitecture: it ends in something else than an activation, or a mean of probabilities.
    """
    found = copy.deepcopy(architecture)
    last = _last(found)
    config = last["config"]
    if last.get("class_name") in _MEANS and "output_layers" in found["config"]:
        return found, _with_logarithms(found, _width(last))
    name = SOFTMAX if last.get("class_name") == "Softmax" else config.get("activation")
    if name not in (SOFTMAX, SIGMOID):
        raise InvalidArchitecture(
            f"model_table: got a net that ends in {last.get('class_name')} {config.get('name')!r}; {_ENDINGS}"
        )
    if last["class_name"] == "Softmax":
        last["class_name"] = "Activation"
        last["config"] = {
            key: config[key] for key in ("name", "dtype", "trainable") if key in config
        }
    last["config"]["activation"] = "linear"
    return found, str(name)


def _with_logarithms(architecture: Config, units: int) -> str:
    """Let a net that ends in probabilities end in logits: their logarithms, or the difference of two."""
    name = _last(architecture)["config"]["name"]
    if units > 1:
        _append(architecture, "Rescaling", "positive", {"scale": 1.0, "offset": _LEAST})
        _append(architecture, "Log", "logits", {}, module=_NUMPY)
        return SOFTMAX
    parts = []
    for part, scale, offset in (("positive", 1.0, _LEAST), ("rest", -1.0, 1.0 + _STEP)):
        _append(architecture, "Rescaling", part, {"scale": scale, "offset": offset}, [name])
        _append(architecture, "Log", f"{part}_log", {}, module=_NUMPY)
        parts.append(_last(architecture)["config"]["name"])
    _append(architecture, "Subtract", "logits", {}, parts)
    return SIGMOID


def scaled(logits: Config, scale: float, activation: str | None) -> Config:
    """A net that ends in logits, with these multiplied, and an activation behind.

    Args:
        logits: a checked net of one output.
        scale: of the logits, the reciprocal of a temperature.
        activation: None for a net that is to end in logits.
    """
    found = copy.deepcopy(logits)
    _append(found, "Rescaling", "temperature", {"scale": scale, "offset": 0.0})
    if activation is not None:
        _append(found, "Activation", "calibrated", {"activation": activation})
    return found


def _layers(architecture: Config) -> list[Config]:
    layers: list[Config] = architecture["config"]["layers"]
    return layers


def _last(architecture: Config) -> Config:
    """The layer that makes the output."""
    ends = architecture["config"].get("output_layers")
    if not ends:
        return _layers(architecture)[-1]
    name = ends[0][0] if isinstance(ends[0], list) else ends[0]
    return next(one for one in _layers(architecture) if one["config"].get("name") == name)


def _append(
    architecture: Config,
    kind: str,
    name: str,
    config: Config,
    behind: Sequence[str] = (),
    module: str = "keras.layers",
) -> None:
    """Add a layer, or an operation, which becomes the output.

    Args:
        architecture: of one output.
        kind: class of the layer.
        name: which gets a number where it is taken.
        config: of the layer.
        behind: names of layers; by default that which makes the output.
        module: of the class.
    """
    last, ends = _last(architecture), architecture["config"].get("output_layers")
    taken = {one["config"].get("name") for one in _layers(architecture)}
    name = next(one for one in _names(name) if one not in taken)
    own = {"trainable": True, "dtype": "float32"} if module == "keras.layers" else {}
    layer: Config = {
        "module": module,
        "class_name": kind,
        "config": {"name": name, **own, **config},
        "registered_name": None,
    }
    if ends:
        width = _width(last)
        tensors = [_tensor(one, width) for one in behind or [last["config"]["name"]]]
        args = tensors if len(tensors) == 1 else [tensors]
        layer |= {"name": name, "inbound_nodes": [{"args": args, "kwargs": {}}]}
        end = [name, 0, 0]
        architecture["config"]["output_layers"] = [end] if isinstance(ends[0], list) else end
    _layers(architecture).append(layer)


def _tensor(layer: str, width: int) -> Config:
    config = {"shape": [None, width], "dtype": "float32", "keras_history": [layer, 0, 0]}
    return {"class_name": "__keras_tensor__", "config": config}


def _names(name: str) -> Any:
    yield name
    number = 1
    while True:
        yield f"{name}_{number}"
        number += 1


def _width(layer: Config) -> int:
    """Number of outputs of a layer."""
    units = layer["config"].get("units")
    if not isinstance(units, int):
        try:
            first = layer["inbound_nodes"][0]["args"][0]
            units = (first[0] if isinstance(first, list) else first)["config"]["shape"][-1]
        except (KeyError, IndexError, TypeError):
            units = None
    if not isinstance(units, int):
        raise InvalidArchitecture(
            f"model_table: got a net that ends in {layer['class_name']}; {_ENDINGS}"
        )
    return units
