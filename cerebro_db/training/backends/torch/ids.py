"""Ids of rows that an embedding lacks, found before they are looked up."""

from __future__ import annotations

import math

import numpy as np

from cerebro_db.configs.aten.graph import Graph, Reference
from cerebro_db.configs.aten.operations import ATEN
from cerebro_db.training.backends.torch.net import Net
from cerebro_db.training.scores.id_fault import IdFault

_EMBEDDING = f"{ATEN}embedding.default"
_SAME = frozenset(
    f"{ATEN}{name}"
    for name in ("to.dtype", "to.device", "to.dtype_layout", "_to_copy.default", "clone.default",
                 "contiguous.default", "detach.default", "alias.default")
)  # fmt: skip


class EmbeddingIds:
    """The features of a net that are ids.

    Args:
        net: whose.
    """

    def __init__(self, net: Net) -> None:
        self._shapes = net.shapes
        sizes = {one.name: one.shape[0] for one in net.architecture.parameters if one.shape}
        shared = net.architecture.shared
        self._found = [
            (place, shared.get(name, name), sizes[shared.get(name, name)])
            for place, name in _lookups(net.graph)
            if shared.get(name, name) in sizes
        ]

    def fault(self, features: np.ndarray) -> tuple[int, IdFault] | None:
        """The first row with an id beyond an embedding, and what is wrong with it."""
        faults = [found for one in self._found if (found := self._fault(features, *one))]
        return min(faults, key=lambda found: found[0], default=None)

    def _fault(
        self, features: np.ndarray, place: int, name: str, size: int
    ) -> tuple[int, IdFault] | None:
        start = sum(math.prod(shape) for shape in self._shapes[:place])
        flat = features.reshape(len(features), -1)
        values = flat[:, start : start + math.prod(self._shapes[place])]
        wrong = ~((values > -1) & (values < size))
        rows = wrong.any(axis=1)
        if not rows.any():
            return None
        row = int(rows.argmax())
        column = int(wrong[row].argmax())
        value = float(values[row, column])
        number = int(value) if math.isfinite(value) else -1
        return row, IdFault(name, number, size, place, column, value)


def _lookups(graph: Graph) -> list[tuple[int, str]]:
    """Places of inputs that are ids, each with the parameter that they are looked up in."""
    copies = {name: name for name in graph.inputs}
    found = []
    for node in graph.nodes:
        given = [one.value for one in node.arguments]
        if node.target in _SAME and isinstance(given[0], Reference) and given[0].name in copies:
            copies |= {
                name: copies[given[0].name] for name in node.outputs if isinstance(name, str)
            }
        if node.target == _EMBEDDING:
            weight, ids = (value.name for value in given[:2])
            kind, name = graph.sources.get(weight, ("", ""))
            if ids in copies and kind == "parameter":
                found.append((graph.inputs.index(copies[ids]), name))
    return found
