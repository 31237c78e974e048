"""Nets whose probabilities are calibrated: a fixed scale, or fixed ramps, between the last weights and the last activation."""

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


def ramped(logits: Config, ramps: Sequence[Sequence[Any]], activation: str | None) -> Config:
    """A net that ends in logits, with a rising function of each of them, and an activation behind.

    Each ramp is ``relu((logit - begin) / (end - begin))`` of 1 at most, times what it rises; their sum is their mean,
    times how many there are. Of several logits these are logarithms of probabilities first.

    Args:
        logits: a checked net of one output.
        ramps: for each logit the first value, and where ramps begin, where they end and how far they rise.
        activation: None for a net that is to end in logits.
    """
    found = copy.deepcopy(logits)
    count = max(1, *(len(rises) for _, _, _, rises in ramps))
    firsts = [first for first, _, _, _ in ramps]
    begins, ends, rises = ([_padded(one[part], count) for one in ramps] for part in (1, 2, 3))
    widths = [
        [end - begin or 1.0 for begin, end in zip(*both, strict=True)]
        for both in zip(begins, ends, strict=True)
    ]
    if len(ramps) > 1:
        _append(found, "Activation", "log_probabilities", {"activation": "log_softmax"})
    _append(found, "RepeatVector", "ramps", {"n": count})
    for name, scale, offset in (
        ("begins", 1.0, _turned([[-begin for begin in one] for one in begins])),
        ("widths", _turned([[1 / width for width in one] for one in widths]), 0.0),
    ):
        _append(found, "Rescaling", name, {"scale": scale, "offset": offset})
    limits = {"max_value": 1.0, "negative_slope": 0.0, "threshold": 0.0}
    _append(found, "ReLU", "bounded", limits)
    rising = _turned([[count * rise for rise in one] for one in rises])
    _append(found, "Rescaling", "rises", {"scale": rising, "offset": 0.0})
    _append(found, "GlobalAveragePooling1D", "sum", _POOLING)
    _append(found, "Rescaling", "isotonic", {"scale": 1.0, "offset": firsts})
    if activation is not None:
        _append(found, "Activation", "calibrated", {"activation": activation})
    return found


_POOLING = {"data_format": "channels_last", "keepdims": False}


def _padded(values: Sequence[float], count: int) -> list[float]:
    """Values, and zeros behind."""
    return [*values, *[0.0] * (count - len(values))]


def _turned(rows: Sequence[Sequence[float]]) -> list[list[float]]:
    """Rows as columns."""
    return [list(one) for one in zip(*rows, strict=True)]


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
