"""Workload that every side of a benchmark trains: rows, architectures and a grid."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Workload:
    """Rows, architectures and the grid over them.

    Attributes:
        features: ``float32[rows, ...]``.
        labels: ``int32[rows]``, class ids.
        architectures: JSON of Keras models.
        loss: by its name in Keras.
        learning_rates, batch_sizes: of Adam; the grid is all of them with every architecture.
        epochs: that every configuration is trained.
        partitions: of the packed table.
        data: what the rows are, for the report.
        again: whether a second run in the same session is measured too.
        streams: whether a run that keeps no partition in memory is measured too.
        in_steps: whether a rotation is measured too, where there are segments.
    """

    name: str
    features: NDArray[np.float32]
    labels: NDArray[np.int32]
    architectures: tuple[str, ...]
    loss: str
    learning_rates: tuple[float, ...]
    batch_sizes: tuple[int, ...]
    epochs: int
    partitions: int
    data: str
    again: bool = False
    streams: bool = False
    in_steps: bool = False

    @property
    def configurations(self) -> int:
        """Number of configurations of the grid."""
        return len(self.architectures) * len(self.learning_rates) * len(self.batch_sizes)

    def facts(self) -> dict[str, Any]:
        """Facts for the report."""
        return {
            "data": self.data,
            "rows": len(self.features),
            "shape": list(self.features.shape[1:]),
            "configurations": self.configurations,
            "epochs": self.epochs,
            "partitions": self.partitions,
        }
