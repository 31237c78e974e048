"""Functional models as JSON, layer by layer.

A ``Graph`` writes what ``keras.Model.to_json()`` would write of the same calls, without Keras: a driver has none.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from cerebro_db.configs.architectures.members import MEAN

_NUMPY, _CORE = "keras.src.ops.numpy", "keras.src.ops.core"


class Scale(NamedTuple):
    """Mean and standard deviation of each number of a target."""

    mean: tuple[float, ...]
    deviation: tuple[float, ...]


class Tensor(NamedTuple):
    """A tensor of a graph.

    Attributes:
        layer: that makes it.
        shape: of one row.
        place: among the outputs of the layer.
    """

    layer: str
    shape: tuple[int, ...]
    place: int = 0

    def to_json(self) -> dict[str, Any]:
        history = [self.layer, 0, self.place]
        config = {"shape": [None, *self.shape], "dtype": "float32", "keras_history": history}
        return {"class_name": "__keras_tensor__", "config": config}


@dataclass
class Graph:
    """Layers of a functional model, each called once."""

    layers: list[dict[str, Any]] = field(default_factory=list)
    inputs: list[Tensor] = field(default_factory=list)
    outputs: list[Tensor] = field(default_factory=list)

    def add(
        self, kind: str, name: str, *given: Tensor, shape: tuple[int, ...] = (), **config: Any
    ) -> Tensor:
        """Call a layer; the result has the shape of the first tensor where none is named."""
        tensors = [one.to_json() for one in given]
        return self.called(
            kind,
            name,
            [tensors[0]] if len(tensors) == 1 else [tensors],
            shape or given[0].shape,
            **config,
        )

    def called(
        self,
        kind: str,
        name: str,
        args: list[Any],
        shape: tuple[int, ...],
        *,
        module: str = "keras.layers",
        **config: Any,
    ) -> Tensor:
        """Call a layer or an operation with arguments of their own order."""
        self.layers.append(
            {
                "module": module,
                "class_name": kind,
                "config": {"name": name, **config},
                "registered_name": None,
                "name": name,
                "inbound_nodes": [{"args": args, "kwargs": {}}] if args else [],
            }
        )
        return Tensor(name, shape)

    def input(self, name: str, shape: tuple[int, ...]) -> Tensor:
        made = self.called("InputLayer", name, [], shape, batch_shape=[None, *shape])
        self.inputs.append(made)
        return made

    def model(
        self, name: str, config: dict[str, Any], given: Sequence[Tensor], shape: tuple[int, ...]
    ) -> Tensor:
        """Call a model, which becomes a layer of that name."""
        tensors = [one.to_json() for one in given]
        args = [tensors[0]] if len(tensors) == 1 else [tensors]
        config["config"]["name"] = name
        self.layers.append(config | {"name": name, "inbound_nodes": [{"args": args, "kwargs": {}}]})
        return Tensor(name, shape)

    def dense(self, name: str, given: Tensor, units: int, activation: str) -> Tensor:
        shape = (*given.shape[:-1], units)
        return self.add("Dense", name, given, shape=shape, units=units, activation=activation)

    def end(
        self,
        given: Tensor,
        units: Sequence[int],
        classes: Sequence[bool],
        scales: Sequence[Scale | None] = (),
    ) -> None:
        """End in an output for each target.

        Args:
            given: what the outputs are made of.
            units: numbers of each output.
            classes: whether they are classes.
            scales: what numbers are multiplied by and shifted by; None for classes.
        """
        ends = zip(units, classes, scales or [None] * len(units), strict=True)
        for place, (size, is_class, scale) in enumerate(ends, 1):
            name = "outputs" if len(units) == 1 else f"outputs_{place}"
            activation = "softmax" if is_class else "linear"
            self.outputs.append(self.predicted(name, given, size, activation, scale))

    def predicted(
        self, name: str, given: Tensor, units: int, activation: str, scale: Scale | None
    ) -> Tensor:
        """An output: of a row, or the mean of what is made of each row of a matrix by weights of its own."""
        members = given.shape[0] if len(given.shape) > 1 else 0
        raw = f"{name}_raw" if members or scale is not None else name
        if members:
            options = {"bias_axes": "kc", "activation": activation}
            made = self.einsum(raw, given, "bkd,kdc->bkc", (members, units), **options)
        else:
            made = self.dense(raw, given, units, activation)
        if scale is not None:
            by, to = list(scale.deviation), list(scale.mean)
            scaled = f"{name}_scaled" if members else name
            made = self.add("Rescaling", scaled, made, scale=by, offset=to)
        return self.add(MEAN, name, made, shape=(units,)) if members else made

    def einsum(
        self, name: str, given: Tensor, equation: str, shape: tuple[int, ...], **config: Any
    ) -> Tensor:
        sizes = {"equation": equation, "output_shape": list(shape), **config}
        return self.add("EinsumDense", name, given, shape=shape, **sizes)

    def dropped(self, name: str, given: Tensor, rate: float | None) -> Tensor:
        return self.add("Dropout", name, given, rate=rate) if rate else given

    def flat(self, given: Tensor) -> Tensor:
        return self.add("Flatten", f"{given.layer}_flat", given, shape=(math.prod(given.shape),))

    def concatenated(self, name: str, given: Sequence[Tensor]) -> Tensor:
        width = sum(one.shape[0] for one in given)
        return self.add("Concatenate", name, *given, shape=(width,), axis=-1)

    def attention(self, name: str, given: Tensor, heads: int, dropout: float | None) -> Tensor:
        """Attention between the rows of a matrix."""
        args, size = [given.to_json(), given.to_json()], given.shape[-1] // heads
        sizes: dict[str, Any] = {"num_heads": heads, "key_dim": size, "dropout": dropout or 0.0}
        return self.called("MultiHeadAttention", name, args, given.shape, **sizes)

    def products(self, name: str, given: Tensor) -> Tensor:
        """The inner product of each two rows of a matrix."""
        args, shape = [given.to_json(), given.to_json()], (given.shape[0], given.shape[0])
        return self.called("Einsum", name, args, shape, module=_NUMPY, subscripts="bid,bjd->bij")

    def split(self, given: Tensor, widths: Sequence[int]) -> list[Tensor]:
        """The parts of a row, of so many numbers each."""
        if len(widths) == 1:
            return [given]
        name, args = f"{given.layer}_split", [given.to_json()]
        ends = list(itertools.accumulate(widths))[:-1]
        self.called("Split", name, args, (), module=_NUMPY, indices_or_sections=ends, axis=1)
        return [Tensor(name, (width,), place) for place, width in enumerate(widths)]

    def unstacked(self, given: Tensor) -> list[Tensor]:
        """The rows of a matrix."""
        name, args = f"{given.layer}_unstacked", [given.to_json()]
        self.called("Unstack", name, args, (), module=_CORE, num=given.shape[0], axis=1)
        return [Tensor(name, given.shape[1:], place) for place in range(given.shape[0])]

    def stacked(self, name: str, given: Sequence[Tensor]) -> Tensor:
        args = [[one.to_json() for one in given]]
        shape = (len(given), *given[0].shape)
        return self.called("Stack", name, args, shape, module=_NUMPY, axis=1)

    def to_json(self, name: str) -> str:
        config = {
            "name": name,
            "layers": self.layers,
            "input_layers": [[one.layer, 0, 0] for one in self.inputs],
            "output_layers": [[one.layer, 0, 0] for one in self.outputs],
        }
        return json.dumps(
            {"module": "keras.src.models.functional", "class_name": "Functional", "config": config}
        )
