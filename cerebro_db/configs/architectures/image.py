"""Nets for the images of a packed table, as JSON that nobody has to write."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from cerebro_db.configs.architectures.graphs import Graph, Scale, Tensor
from cerebro_db.configs.architectures.nets import (
    DataShape,
    check_activation,
    check_dropout,
    check_kind,
)
from cerebro_db.configs.messages import check_range
from cerebro_db.errors import InvalidArgument

_MOST_FILTERS, _MOST_DEPTH, _MOST_UNITS = 4096, 10, 100_000


@dataclass(frozen=True)
class ImageNet:
    """A net for images.

    Attributes:
        kind: one of ``KINDS``.
        filters: of the first stage; each further one has twice as many.
        depth: stages, between which height and width are halved.
        units: of the hidden layer at the end; 0 for none.
        dropout: rate before the outputs; 0 for none.
        activation: of hidden layers.
    """

    kind: str
    filters: int
    depth: int
    units: int
    dropout: float | None
    activation: str

    def check(self) -> None:
        """Refuse what no table could make right.

        Raises:
            InvalidArgument: with the first wrong value.
        """
        check_kind(self.kind, tuple(KINDS))
        check_range("filters", self.filters, 1, _MOST_FILTERS, optional=False)
        check_range("depth", self.depth, 1, _MOST_DEPTH, optional=False)
        check_range("units", self.units, 0, _MOST_UNITS, optional=False)
        check_dropout(self.dropout)
        check_activation("activation", self.activation)

    def json_for(self, data: DataShape, scales: Sequence[Scale | None]) -> str:
        """The JSON of the net, a functional model.

        Args:
            data: shapes of the packed table.
            scales: of each target, what its output is multiplied by and shifted by; None for classes.

        Raises:
            InvalidArgument: the rows are no images.
        """
        shape = data.inputs[0]
        if len(data.inputs) != 1 or len(shape) not in (2, 3):
            listed = ", ".join(str(list(one)) for one in data.inputs)
            raise InvalidArgument(
                f"packed_table: {data.table} has rows of {listed}; allowed: one input of images, "
                "[height, width] or [height, width, channels]",
                hint="cerebro.cerebro_tabular makes nets for columns",
            )
        graph = Graph()
        rows = graph.input("images", shape)
        if len(shape) == 2:
            rows = graph.add("Reshape", "grey", rows, shape=(*shape, 1), target_shape=[*shape, 1])
        hidden = KINDS[self.kind](self, graph, rows)
        hidden = graph.add("GlobalAveragePooling2D", "pooled", hidden, shape=(hidden.shape[-1],))
        if self.units:
            hidden = graph.dense("hidden", hidden, self.units, self.activation)
        hidden = graph.dropped("dropout", hidden, self.dropout)
        graph.end(hidden, data.units, data.classes, scales)
        return graph.to_json(f"image_{self.kind}")


def _convolved(graph: Graph, name: str, rows: Tensor, filters: int, size: int = 3) -> Tensor:
    shape = (*rows.shape[:2], filters)
    return graph.add(
        "Conv2D", name, rows, shape=shape, filters=filters, kernel_size=size, padding="same",
        use_bias=False, kernel_initializer=_HE,
    )  # fmt: skip


def _active(net: ImageNet, graph: Graph, name: str, rows: Tensor) -> Tensor:
    """Normalized by batches, then activated."""
    rows = graph.add("BatchNormalization", f"{name}_norm", rows)
    return graph.add("Activation", f"{name}_active", rows, activation=net.activation)


def _halved(graph: Graph, name: str, rows: Tensor) -> Tensor:
    """Half the height and the width, where both are two or more."""
    height, width, channels = rows.shape
    if min(height, width) < 2:
        return rows
    return graph.add(
        "MaxPooling2D", name, rows, shape=(height // 2, width // 2, channels), pool_size=2
    )


_HE = {"module": "keras.initializers", "class_name": "HeNormal", "config": {"seed": None}}


def _convnet(net: ImageNet, graph: Graph, rows: Tensor) -> Tensor:
    """Two convolutions a stage, as VGG has them."""
    for stage in range(1, net.depth + 1):
        filters = net.filters * 2 ** (stage - 1)
        for place in (1, 2):
            name = f"conv_{stage}_{place}"
            rows = _active(net, graph, name, _convolved(graph, name, rows, filters))
        if stage < net.depth:
            rows = _halved(graph, f"halved_{stage}", rows)
    return rows


def _resnet(net: ImageNet, graph: Graph, rows: Tensor) -> Tensor:
    """A residual block a stage, normalized first: He et al. 2016, "Identity Mappings in Deep Residual Networks"."""
    rows = _convolved(graph, "first", rows, net.filters)
    for stage in range(1, net.depth + 1):
        filters = net.filters * 2 ** (stage - 1)
        active = _active(net, graph, f"block_{stage}", rows)
        inner = _convolved(graph, f"conv_{stage}_1", active, filters)
        inner = _active(net, graph, f"conv_{stage}_1", inner)
        inner = _convolved(graph, f"conv_{stage}_2", inner, filters)
        if rows.shape[-1] != filters:
            rows = _convolved(graph, f"shortcut_{stage}", active, filters, size=1)
        rows = graph.add("Add", f"added_{stage}", rows, inner)
        if stage < net.depth:
            rows = _halved(graph, f"halved_{stage}", rows)
    return _active(net, graph, "last", rows)


# Functions of the net, its graph and the images, by the names of the kinds.
KINDS: dict[str, Callable[[ImageNet, Graph, Tensor], Tensor]] = {
    "convnet": _convnet,
    "resnet": _resnet,
}
