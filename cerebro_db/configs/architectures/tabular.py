"""Nets for the rows of a packed table, as JSON that nobody has to write.

What goes in is known from the description of the packed table: numbers go into the net as they are, and ids into one
embedding for all columns, in which each column has rows of its own. A kind of net is a function from a tensor of
numbers to another one, listed in ``KINDS``.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from cerebro_db.configs.architectures.nets import DataShape, check_activation, check_dropout
from cerebro_db.configs.arguments import nearest
from cerebro_db.configs.messages import check_range, shown
from cerebro_db.errors import InvalidArgument

# Float32 holds all whole numbers up to here, so that an id and what is added to it stay exact.
_MOST_IDS = 2**24
_MOST_UNITS, _MOST_DEPTH, _MOST_EMBEDDING = 100_000, 100, 4096
_WIDENED = 2  # of the hidden layer in a residual block, in units


@dataclass(frozen=True)
class TabularNet:
    """A net for tables.

    Attributes:
        kind: one of ``KINDS``.
        units: of each hidden layer.
        depth: hidden layers, or residual blocks.
        dropout: rate after each of them; 0 for none.
        embedding: numbers for each id.
        activation: of hidden layers.
    """

    kind: str
    units: int
    depth: int
    dropout: float | None
    embedding: int
    activation: str

    def check(self) -> None:
        """Refuse what no table could make right.

        Raises:
            InvalidArgument: with the first wrong value.
        """
        if self.kind not in KINDS:
            raise InvalidArgument(
                f"kind: got {shown(self.kind)}; allowed: {', '.join(map(repr, KINDS))}",
                hint=nearest(str(self.kind)[:80], tuple(KINDS)),
            )
        check_range("units", self.units, 1, _MOST_UNITS, optional=False)
        check_range("depth", self.depth, 0, _MOST_DEPTH, optional=False)
        check_range("embedding", self.embedding, 1, _MOST_EMBEDDING, optional=False)
        check_dropout(self.dropout)
        check_activation("activation", self.activation)

    def json_for(self, data: DataShape, ids: Sequence[tuple[int, ...]]) -> str:
        """The JSON of the net, a functional model.

        Args:
            data: shapes of the packed table.
            ids: of each input, how many ids there are at each place; empty where it holds numbers.

        Raises:
            InvalidArgument: there are more ids than float32 holds.
        """
        graph = _Graph()
        pairs = enumerate(zip(data.inputs, ids, strict=True))
        parts = [self._entered(graph, place, *one) for place, one in pairs]
        rows = parts[0] if len(parts) == 1 else graph.concatenated("row", parts)
        hidden = KINDS[self.kind](self, graph, rows)
        for place, (units, is_class) in enumerate(zip(data.units, data.classes, strict=True), 1):
            name = "outputs" if len(data.units) == 1 else f"outputs_{place}"
            activation = "softmax" if is_class else "linear"
            graph.outputs.append(graph.dense(name, hidden, units, activation))
        return graph.to_json(f"tabular_{self.kind}")

    def _entered(
        self, graph: _Graph, place: int, shape: tuple[int, ...], ids: tuple[int, ...]
    ) -> _Tensor:
        """An input as a row of numbers."""
        name = "ids" if ids else "features"
        rows = graph.input(name if place == 0 else f"{name}_{place}", shape)
        if not ids:
            return rows if len(rows.shape) == 1 else graph.flat(rows)
        starts = list(itertools.accumulate(ids, initial=0))
        if starts[-1] > _MOST_IDS:
            raise InvalidArgument(
                f"packed_table: its columns have {starts[-1]} ids together; allowed: up to {_MOST_IDS}, which "
                "float32 holds exactly",
                hint="ids(n) in the encodings puts categories of fewer than n rows together",
            )
        if len(ids) > 1:
            rows = graph.add(
                "Rescaling", f"{rows.layer}_of_all", rows, scale=1.0, offset=starts[:-1]
            )
        looked_up = graph.add(
            "Embedding",
            f"{rows.layer}_embedded",
            rows,
            shape=(*rows.shape, self.embedding),
            input_dim=starts[-1],
            output_dim=self.embedding,
        )
        return graph.flat(looked_up)


class _Tensor(NamedTuple):
    layer: str
    shape: tuple[int, ...]

    def to_json(self) -> dict[str, Any]:
        history = [self.layer, 0, 0]
        config = {"shape": [None, *self.shape], "dtype": "float32", "keras_history": history}
        return {"class_name": "__keras_tensor__", "config": config}


@dataclass
class _Graph:
    """Layers of a functional model, each called once."""

    layers: list[dict[str, Any]] = field(default_factory=list)
    inputs: list[_Tensor] = field(default_factory=list)
    outputs: list[_Tensor] = field(default_factory=list)

    def add(
        self, kind: str, name: str, *given: _Tensor, shape: tuple[int, ...] = (), **config: Any
    ) -> _Tensor:
        """Call a layer; the result has the shape of the first tensor where none is named."""
        tensors = [one.to_json() for one in given]
        args = [tensors[0]] if len(tensors) == 1 else [tensors]
        self.layers.append(
            {
                "module": "keras.layers",
                "class_name": kind,
                "config": {"name": name, **config},
                "registered_name": None,
                "name": name,
                "inbound_nodes": [{"args": args, "kwargs": {}}] if given else [],
            }
        )
        return _Tensor(name, shape or given[0].shape)

    def input(self, name: str, shape: tuple[int, ...]) -> _Tensor:
        made = self.add("InputLayer", name, shape=shape, batch_shape=[None, *shape])
        self.inputs.append(made)
        return made

    def dense(self, name: str, given: _Tensor, units: int, activation: str) -> _Tensor:
        return self.add("Dense", name, given, shape=(units,), units=units, activation=activation)

    def dropped(self, name: str, given: _Tensor, rate: float | None) -> _Tensor:
        return self.add("Dropout", name, given, rate=rate) if rate else given

    def flat(self, given: _Tensor) -> _Tensor:
        return self.add("Flatten", f"{given.layer}_flat", given, shape=(math.prod(given.shape),))

    def concatenated(self, name: str, given: Sequence[_Tensor]) -> _Tensor:
        width = sum(one.shape[0] for one in given)
        return self.add("Concatenate", name, *given, shape=(width,), axis=-1)

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


def _mlp(net: TabularNet, graph: _Graph, rows: _Tensor) -> _Tensor:
    """Hidden layers one after another."""
    for number in range(1, net.depth + 1):
        rows = graph.dense(f"hidden_{number}", rows, net.units, net.activation)
        rows = graph.dropped(f"dropout_{number}", rows, net.dropout)
    return rows


def _resnet(net: TabularNet, graph: _Graph, rows: _Tensor) -> _Tensor:
    """Residual blocks, normalized first: Gorishniy et al. 2021, "Revisiting Deep Learning Models for Tabular Data"."""
    rows = graph.dense("first", rows, net.units, "linear")
    for number in range(1, net.depth + 1):
        inner = graph.add("BatchNormalization", f"norm_{number}", rows)
        inner = graph.dense(f"widened_{number}", inner, _WIDENED * net.units, net.activation)
        inner = graph.dropped(f"dropout_{number}", inner, net.dropout)
        inner = graph.dense(f"narrowed_{number}", inner, net.units, "linear")
        inner = graph.dropped(f"last_dropout_{number}", inner, net.dropout)
        rows = graph.add("Add", f"block_{number}", rows, inner)
    rows = graph.add("BatchNormalization", "norm", rows)
    return graph.add("Activation", "active", rows, activation=net.activation)


# Functions of the net, its graph and the tensor of a row, by the names of the kinds.
KINDS: dict[str, Callable[[TabularNet, _Graph, _Tensor], _Tensor]] = {
    "mlp": _mlp,
    "resnet": _resnet,
}
