"""Layers of an architecture that do not train, by their names or patterns of them."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any

from cerebro_db.configs.architectures.limits import refuse
from cerebro_db.configs.architectures.names import LAYERS, MODELS, POLICIES, is_layer
from cerebro_db.configs.arguments import choice, nearest
from cerebro_db.configs.messages import shown
from cerebro_db.errors import InvalidArgument

_MOST = 1000
_LONGEST = 200
# They have no weights, and no argument trainable.
_WITHOUT_WEIGHTS = frozenset(
    ["Discretization", "InputLayer", "SpatialDropout1D", "SpatialDropout2D", "SpatialDropout3D"]
)
# Layers that have weights which train; wrappers have those of the layers inside of them.
_TRAINED = frozenset(
    [
        "AdditiveAttention", "Attention", "BatchNormalization", "Conv1D", "Conv1DTranspose", "Conv2D",
        "Conv2DTranspose", "Conv3D", "Conv3DTranspose", "ConvLSTM1D", "ConvLSTM2D", "ConvLSTM3D",
        "Dense", "DepthwiseConv1D", "DepthwiseConv2D", "EinsumDense", "Embedding", "GRU", "GRUCell",
        "GroupNormalization", "GroupQueryAttention", "LSTM", "LSTMCell", "LayerNormalization", "LayerScale",
        "MultiHeadAttention", "PReLU", "RMSNormalization", "ReversibleEmbedding", "SeparableConv1D",
        "SeparableConv2D", "SimpleRNN", "SimpleRNNCell",
    ]
)  # fmt: skip


def parse_freeze(value: object, what: str) -> tuple[str, ...]:
    """Patterns of names of layers, from one text or a list of them; each once, in their order."""
    patterns = [value] if isinstance(value, str) else value
    good = isinstance(patterns, list | tuple) and len(patterns) <= _MOST
    if not good or not all(isinstance(p, str) and 0 < len(p) <= _LONGEST for p in patterns):  # type: ignore[attr-defined]
        raise InvalidArgument(
            f"{what}: got freeze={shown(value)}; it must be the name of a layer, a pattern such as "
            f"'conv*', or a list of up to {_MOST} of them"
        )
    return tuple(dict.fromkeys(patterns))  # type: ignore[call-overload]


def with_frozen(config: Mapping[str, Any], patterns: tuple[str, ...]) -> dict[str, Any]:
    """Returns a copy in which the layers of these names, and what is inside of them, do not train.

    Args:
        config: a checked architecture.
        patterns: with ``*``, ``?`` and ``[abc]``; case matters.

    Raises:
        InvalidArchitecture: no layer has such a name.
    """
    changed: dict[str, Any] = copy.deepcopy(dict(config))
    layers = [layer for layer in inner_layers(changed) if _name(layer)]
    for pattern in patterns:
        found = [layer for layer in layers if fnmatchcase(_name(layer), pattern)]
        if not found:
            names = {_name(layer) for layer in layers}
            hint = nearest(pattern, names) if names else "Its JSON gives no layer a name."
            refuse(f"got freeze={pattern!r}, but no layer has such a name", hint)
        for layer in found:
            _freeze(layer)
    return changed


def may_train(value: Any) -> bool:
    """Tell whether a layer inside of an object has weights that train; arguments may still leave it none."""
    if not isinstance(value, dict | list):
        return False
    if isinstance(value, dict) and _is_layer(value) and value["class_name"] in LAYERS:
        if value["config"].get("trainable") is False:
            return False  # nor does what is inside of it
        if value["class_name"] in _TRAINED:
            return True
    return any(map(may_train, value.values() if isinstance(value, dict) else value))


def _freeze(layer: dict[str, Any]) -> None:
    for each in (layer, *inner_layers(layer)):
        if each["class_name"] in LAYERS - _WITHOUT_WEIGHTS:
            each["config"]["trainable"] = False


def inner_layers(value: Any) -> Iterator[dict[str, Any]]:
    """Yields the layers and models inside of an object."""
    children = value.values() if isinstance(value, dict) else value
    for child in children if isinstance(value, dict | list) else ():
        if _is_layer(child):
            yield child
        yield from inner_layers(child)


def _is_layer(value: Any) -> bool:
    has_config = isinstance(value, dict) and isinstance(value.get("config"), dict)
    return has_config and (value.get("class_name") in MODELS or is_layer(value))


def _name(layer: Mapping[str, Any]) -> str:
    name = layer.get("name", layer["config"].get("name"))
    return name if isinstance(name, str) else ""


DTYPE_POLICY = choice("dtype_policy", None, *sorted(POLICIES))
# What they are given is not computed with: rows as they come, and numbers of bins.
_OTHER_TYPES = frozenset(["Discretization", "Hashing", "InputLayer", "IntegerLookup"])


def with_policy(config: Mapping[str, Any], policy: str) -> dict[str, Any]:
    """Returns a copy in which every layer, nested ones too, follows a policy.

    As in Keras where it is set before the model is made; whole numbers stay whole numbers.
    """
    changed: dict[str, Any] = copy.deepcopy(dict(config))
    for layer in inner_layers(changed):
        if layer["class_name"] in LAYERS - _OTHER_TYPES and not _is_whole(layer["config"]):
            layer["config"]["dtype"] = policy
    return changed


def _is_whole(config: Mapping[str, Any]) -> bool:
    dtype = config.get("dtype")
    return isinstance(dtype, str) and ("int" in dtype or dtype == "bool")
