"""Predictions of all rows with their targets, for what is computed over several models."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from cerebro_db.training.fields import Fields
from cerebro_db.training.recipe import Recipe
from cerebro_db.training.scores.studies.study import Studied, Study, read_array, written


class Outputs(Study):
    """Outputs of a model of one target, and the targets."""

    kind = "outputs"

    def __init__(self, task: Fields, studied: Studied) -> None:
        super().__init__(task, studied)
        self._outputs: list[np.ndarray] = []
        self._targets: list[np.ndarray] = []

    def chunk(self, number: int, features: np.ndarray, targets: list[np.ndarray]) -> None:
        """Predict the rows."""
        self._studied.tick()
        (outputs,) = self._studied.scorer.predict(features)
        self._outputs.append(outputs.reshape(len(outputs), -1).astype("<f4"))
        self._targets.append(targets[0].reshape(len(outputs), -1).astype("<f4"))

    def to_json(self) -> Any:
        """Both, and how many numbers a row has."""
        outputs, targets = np.concatenate(self._outputs), np.concatenate(self._targets)
        return {
            "units": outputs.shape[1],
            "outputs": written(outputs),
            "targets": written(targets),
        }

    @classmethod
    def combined(cls, task: Fields, recipe: Recipe, parts: Sequence[Any]) -> Any:
        """The parts, partition by partition."""
        return list(parts)


def arrays_of(parts: Sequence[Any]) -> tuple[np.ndarray, np.ndarray]:
    """Outputs ``float32[rows, units]`` and targets ``float32[rows, ...]`` of the parts of all partitions."""
    units = parts[0]["units"]
    outputs, targets = (
        np.concatenate([read_array(part[name], "<f4") for part in parts])
        for name in ("outputs", "targets")
    )
    rows = len(outputs) // units
    return outputs.reshape(rows, units), targets.reshape(rows, -1)
