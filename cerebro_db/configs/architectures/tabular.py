"""Nets for the rows of a packed table, as JSON that nobody has to write.

The description of the packed table says what goes in: numbers go into the net as they are, and ids into one
embedding for all columns, in which each column has rows of its own. A kind of net is a function from the entries
of a row to the tensor that the outputs are made of, listed in ``KINDS``. Kinds that compare columns make a *token*
of each: as many numbers for every column, by a layer of its own.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from cerebro_db.configs.architectures.graphs import Graph, Scale, Tensor
from cerebro_db.configs.architectures.nets import (
    DataShape,
    check_activation,
    check_dropout,
    check_kind,
)
from cerebro_db.configs.messages import check_range
from cerebro_db.errors import InvalidArgument

# Float32 holds all whole numbers up to here, so that an id and what is added to it stay exact.
_MOST_IDS = 2**24
_MOST_UNITS, _MOST_DEPTH, _MOST_EMBEDDING = 100_000, 100, 4096
_WIDENED = 2  # of the hidden layer in a residual block, in units
_MOST_MEMBERS = 1024
_MOST_TOKENS = 200  # of kinds that compare each two columns
_MOST_HEADS = 8


@dataclass(frozen=True)
class TabularNet:
    """A net for tables.

    Attributes:
        kind: one of ``KINDS``.
        units: of each hidden layer; of ``transformer`` the numbers of a token.
        depth: hidden layers, or blocks.
        dropout: rate after each of them; 0 for none.
        embedding: numbers for each id; of ``pnn`` the numbers of a token.
        activation: of hidden layers.
        members: of ``tabm``.
    """

    kind: str
    units: int
    depth: int
    dropout: float | None
    embedding: int
    activation: str
    members: int

    def check(self) -> None:
        """Refuse what no table could make right.

        Raises:
            InvalidArgument: with the first wrong value.
        """
        check_kind(self.kind, tuple(KINDS))
        check_range("units", self.units, 1, _MOST_UNITS, optional=False)
        check_range("depth", self.depth, 0, _MOST_DEPTH, optional=False)
        check_range("embedding", self.embedding, 1, _MOST_EMBEDDING, optional=False)
        check_range("members", self.members, 1, _MOST_MEMBERS, optional=False)
        check_dropout(self.dropout)
        check_activation("activation", self.activation)

    def json_for(
        self,
        data: DataShape,
        columns: Sequence[Sequence[Feature]],
        scales: Sequence[Scale | None] = (),
    ) -> str:
        """The JSON of the net, a functional model.

        Args:
            data: shapes of the packed table.
            columns: of each input, its columns; empty where it is an array.
            scales: of each target, what its output is multiplied by and shifted by; None for classes.

        Raises:
            InvalidArgument: there are more ids than float32 holds, or more columns than the kind compares.
        """
        graph = Graph()
        pairs = enumerate(zip(data.inputs, columns, strict=True))
        entries = [_entry(graph, place, *one) for place, one in pairs]
        hidden = KINDS[self.kind](self, graph, entries)
        graph.end(hidden, data.units, data.classes, scales)
        return graph.to_json(f"tabular_{self.kind}")


class Feature(NamedTuple):
    """A column of an input.

    Attributes:
        width: numbers that stand for it.
        ids: number of ids, where its one number is an id; 0 for others.
    """

    width: int
    ids: int


@dataclass(frozen=True)
class _Entry:
    """An input of the net.

    Attributes:
        rows: the tensor of the input.
        columns: its columns in the order of their numbers; empty for an array.
    """

    rows: Tensor
    columns: Sequence[Feature]

    @property
    def has_ids(self) -> bool:
        return any(column.ids for column in self.columns)


def _entry(graph: Graph, place: int, shape: tuple[int, ...], columns: Sequence[Feature]) -> _Entry:
    name = "ids" if any(column.ids for column in columns) else "features"
    return _Entry(graph.input(name if place == 0 else f"{name}_{place}", shape), columns)


def _embedded(graph: Graph, entry: _Entry, numbers: int) -> Tensor:
    """The ids of columns (columns, numbers), by one embedding in which each column has rows of its own."""
    rows = entry.rows
    starts = list(itertools.accumulate((column.ids for column in entry.columns), initial=0))
    if starts[-1] > _MOST_IDS:
        raise InvalidArgument(
            f"packed_table: its columns have {starts[-1]} ids together; allowed: up to {_MOST_IDS}, which "
            "float32 holds exactly",
            hint="ids(n) in the encodings puts categories of fewer than n rows together",
        )
    if len(entry.columns) > 1:
        rows = graph.add("Rescaling", f"{rows.layer}_of_all", rows, scale=1.0, offset=starts[:-1])
    return graph.add(
        "Embedding",
        f"{rows.layer}_embedded",
        rows,
        shape=(*rows.shape, numbers),
        input_dim=starts[-1],
        output_dim=numbers,
    )


def _row(net: TabularNet, graph: Graph, entries: Sequence[_Entry]) -> Tensor:
    """All numbers and embedded ids one after another."""
    parts = []
    for entry in entries:
        rows = _embedded(graph, entry, net.embedding) if entry.has_ids else entry.rows
        parts.append(rows if len(rows.shape) == 1 else graph.flat(rows))
    return parts[0] if len(parts) == 1 else graph.concatenated("row", parts)


def _tokens(net: TabularNet, graph: Graph, entries: Sequence[_Entry], numbers: int) -> Tensor:
    """A token of each column (columns, numbers).

    Raises:
        InvalidArgument: there are too many columns, or an input has none.
    """
    found: list[Tensor] = []
    for entry in entries:
        if not entry.columns and len(entry.rows.shape) != 1:
            raise InvalidArgument(
                f"kind: got {net.kind!r}, which compares columns, for rows of the shape {list(entry.rows.shape)}; "
                "allowed: columns, or arrays of one dimension",
                hint="kind := 'mlp' takes numbers of any shape",
            )
        columns = entry.columns or [Feature(1, 0)] * entry.rows.shape[0]
        if len(found) + len(columns) > _MOST_TOKENS:
            raise InvalidArgument(
                f"kind: got {net.kind!r}, which compares each two columns, for more than {_MOST_TOKENS} columns; "
                f"allowed: up to {_MOST_TOKENS}",
                hint="kind := 'mlp' takes any number of columns",
            )
        if entry.has_ids:
            found += graph.unstacked(_embedded(graph, entry, numbers))
        else:
            parts = graph.split(entry.rows, [column.width for column in columns])
            found += [
                graph.dense(f"token_{place}", part, numbers, "linear")
                for place, part in enumerate(parts, len(found) + 1)
            ]
    return graph.stacked("tokens", found)


def _mlp(net: TabularNet, graph: Graph, entries: Sequence[_Entry]) -> Tensor:
    """Hidden layers one after another."""
    return _hidden(net, graph, _row(net, graph, entries))


def _hidden(net: TabularNet, graph: Graph, rows: Tensor) -> Tensor:
    for number in range(1, net.depth + 1):
        rows = graph.dense(f"hidden_{number}", rows, net.units, net.activation)
        rows = graph.dropped(f"dropout_{number}", rows, net.dropout)
    return rows


def _resnet(net: TabularNet, graph: Graph, entries: Sequence[_Entry]) -> Tensor:
    """Residual blocks, normalized first: Gorishniy et al. 2021, "Revisiting Deep Learning Models for Tabular Data"."""
    rows = graph.dense("first", _row(net, graph, entries), net.units, "linear")
    for number in range(1, net.depth + 1):
        inner = graph.add("BatchNormalization", f"norm_{number}", rows)
        inner = graph.dense(f"widened_{number}", inner, _WIDENED * net.units, net.activation)
        inner = graph.dropped(f"dropout_{number}", inner, net.dropout)
        inner = graph.dense(f"narrowed_{number}", inner, net.units, "linear")
        inner = graph.dropped(f"last_dropout_{number}", inner, net.dropout)
        rows = graph.add("Add", f"block_{number}", rows, inner)
    rows = graph.add("BatchNormalization", "norm", rows)
    return graph.add("Activation", "active", rows, activation=net.activation)


def _tabm(net: TabularNet, graph: Graph, entries: Sequence[_Entry]) -> Tensor:
    """Members that share hidden layers, but weigh the numbers of a row and end each in their own way: TabM-mini of
    Gorishniy et al. 2025, with normal weights in place of random signs."""
    rows = _row(net, graph, entries)
    shape = (net.members, *rows.shape)
    normal = {
        "module": "keras.initializers",
        "class_name": "RandomNormal",
        "config": {"mean": 0.0, "stddev": 1.0, "seed": None},
    }
    weighed = graph.einsum("members", rows, "bd,kd->bkd", shape, kernel_initializer=normal)
    return _hidden(net, graph, weighed)


def _pnn(net: TabularNet, graph: Graph, entries: Sequence[_Entry]) -> Tensor:
    """Hidden layers over tokens and the inner product of each two: Qu et al. 2016, "Product-based Neural Networks"."""
    tokens = _tokens(net, graph, entries, net.embedding)
    products = graph.products("products", tokens)
    return _hidden(
        net, graph, graph.concatenated("row", [graph.flat(tokens), graph.flat(products)])
    )


def _transformer(net: TabularNet, graph: Graph, entries: Sequence[_Entry]) -> Tensor:
    """Attention between the columns, normalized first: FT-Transformer of Gorishniy et al. 2021, with the mean of the tokens
    in place of a token of its own for the output."""
    rows = _tokens(net, graph, entries, net.units)
    heads = math.gcd(net.units, _MOST_HEADS)
    for number in range(1, net.depth + 1):
        inner = graph.add("LayerNormalization", f"norm_{number}", rows)
        inner = graph.attention(f"attention_{number}", inner, heads, net.dropout)
        inner = graph.dropped(f"dropout_{number}", inner, net.dropout)
        rows = graph.add("Add", f"attended_{number}", rows, inner)
        inner = graph.add("LayerNormalization", f"second_norm_{number}", rows)
        inner = graph.dense(f"widened_{number}", inner, _WIDENED * net.units, net.activation)
        inner = graph.dense(f"narrowed_{number}", inner, net.units, "linear")
        inner = graph.dropped(f"last_dropout_{number}", inner, net.dropout)
        rows = graph.add("Add", f"block_{number}", rows, inner)
    rows = graph.add("LayerNormalization", "norm", rows)
    rows = graph.add("GlobalAveragePooling1D", "mean", rows, shape=(net.units,))
    return graph.add("Activation", "active", rows, activation=net.activation)


# Functions of the net, its graph and the inputs, by the names of the kinds.
KINDS: dict[str, Callable[[TabularNet, Graph, Sequence[_Entry]], Tensor]] = {
    "mlp": _mlp,
    "resnet": _resnet,
    "tabm": _tabm,
    "pnn": _pnn,
    "transformer": _transformer,
}
