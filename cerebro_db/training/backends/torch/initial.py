"""Initial weights that are drawn from a seed, as torch's layers draw theirs.

The layer of a parameter follows from the operation that takes it. Where that is none whose initializer is known, the
weights that were exported have to be given.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch

from cerebro_db.configs.aten.check import references
from cerebro_db.configs.aten.graph import Node
from cerebro_db.configs.aten.operations import ATEN
from cerebro_db.configs.messages import shown
from cerebro_db.errors import InvalidArgument
from cerebro_db.training.backends.torch.net import Net
from cerebro_db.training.state import WEIGHTS, State

Draw = Callable[[torch.Tensor, torch.Generator], Any]
_DENSE = (
    "linear",
    "conv1d",
    "conv2d",
    "conv3d",
    "conv_transpose1d",
    "conv_transpose2d",
    "conv_transpose3d",
)
_NORMS = (
    "batch_norm", "layer_norm", "group_norm", "instance_norm", "rms_norm", "native_layer_norm",
    "native_group_norm", "_native_batch_norm_legit", "native_batch_norm",
)  # fmt: skip
_RECURRENT = ("lstm", "gru", "rnn_tanh", "rnn_relu")
_CONSTANTS = {"weight": 1.0, "bias": 0.0, "running_mean": 0.0, "running_var": 1.0}


def drawn(net: Net, seed: int) -> State:
    """The weights of a net, drawn one after another.

    Raises:
        InvalidArgument: it is not known how to draw one of them.
    """
    generator = torch.Generator()
    generator.manual_seed(seed)
    draws = _draws(net)
    found: State = {}
    for entry in net.entries:
        if entry.name not in draws:
            raise InvalidArgument(
                f"got no weights for a PyTorch model, whose {shown(entry.name)} cannot be drawn anew; "
                "allowed: for layers whose initializer is known",
                hint="load the model with its weights",
            )
        tensor = torch.zeros(entry.shape, dtype=getattr(torch, entry.dtype))
        draws[entry.name](tensor, generator)
        found[WEIGHTS + entry.name] = tensor.numpy()
    return found


def _draws(net: Net) -> dict[str, Draw]:
    """How each weight is drawn, by its name."""
    names = {value: name for value, (_, name) in net.graph.sources.items() if name}
    shapes = {one.name: one.shape for one in net.entries}
    shapes |= {alias: shapes[name] for alias, name in net.architecture.shared.items()}
    found: dict[str, Draw] = {}
    for node in net.graph.nodes:
        for value, draw in _of_node(node, {v: shapes[n] for v, n in names.items() if n in shapes}):
            found.setdefault(names[value], draw)
    return found


def _of_node(node: Node, shapes: Mapping[str, list[int]]) -> list[tuple[str, Draw]]:
    """The weights that a node takes."""
    name = node.target.removeprefix(ATEN).partition(".")[0]
    if name in _RECURRENT:
        values = [one for one in references(node.value("params", 2)) if one in shapes]
        bound = 1 / math.sqrt(shapes[values[1]][1]) if len(values) > 1 else 0.0
        return [(value, _uniform(bound)) for value in values]
    given = {
        one.name: found
        for one in node.arguments
        for found in references(one.value)
        if found in shapes
    }
    if name in _DENSE and "weight" in given:
        return _dense(given, shapes[given["weight"]])
    if name in _NORMS:
        return [
            (value, _fill(_CONSTANTS[key])) for key, value in given.items() if key in _CONSTANTS
        ]
    if name == "embedding" and "weight" in given:
        return [(given["weight"], _normal(node.value("padding_idx", 2)))]
    if name == "prelu" and "weight" in given:
        return [(given["weight"], _fill(0.25))]
    if name == "add_":  # the count of batches
        return [(value, _fill(0)) for key, value in given.items() if key == "self"]
    return []


def _dense(given: Mapping[str, str], shape: list[int]) -> list[tuple[str, Draw]]:
    fan = math.prod(shape[1:])
    slope = math.sqrt(2.0 / (1 + math.sqrt(5) ** 2))
    draws = [(given["weight"], _uniform(math.sqrt(3.0) * (slope / math.sqrt(fan))))]
    if "bias" in given:
        draws.append((given["bias"], _uniform(1 / math.sqrt(fan))))
    return draws


def _uniform(bound: float) -> Draw:
    return lambda tensor, generator: tensor.uniform_(-bound, bound, generator=generator)


def _fill(value: float) -> Draw:
    return lambda tensor, generator: tensor.fill_(value)


def _normal(padding: int | None) -> Draw:
    def draw(tensor: torch.Tensor, generator: torch.Generator) -> None:
        tensor.normal_(generator=generator)
        if padding is not None and padding >= 0:
            tensor[padding].zero_()

    return draw
