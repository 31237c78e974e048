"""Partial dependence: the mean prediction of rows when a column has the same value in all of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from cerebro_db.errors import InvalidArgument
from cerebro_db.training.fields import Fields
from cerebro_db.training.recipe import Recipe
from cerebro_db.training.scores.probabilities import probabilities
from cerebro_db.training.scores.studies.study import MAX_PLACE, Studied, Study, columns_of, flat


class Dependence(Study):
    """Sums of predictions for each value of each column, over some rows of the partition.

    The rows are those with the least random numbers of the seed, however they come in chunks.
    """

    kind = "dependence"

    def __init__(self, task: Fields, studied: Studied) -> None:
        super().__init__(task, studied)
        self._columns = columns_of(task)
        self._grids = [_grid(one) for one in task.objects("columns")]
        seed = [task.integer("seed") % 2**64, studied.partition_key]
        self._generator = np.random.default_rng(seed)
        self._most = task.object("rows").integer(str(studied.partition_key), 0, MAX_PLACE)
        self._keys = np.zeros(0)
        self._kept: np.ndarray | None = None
        self._sums: list[list[list[float]]] = []

    def chunk(self, number: int, features: np.ndarray, targets: list[np.ndarray]) -> None:
        """Keep some of the rows."""
        keys = np.concatenate([self._keys, self._generator.random(len(features))])
        rows = features if self._kept is None else np.concatenate([self._kept, features])
        chosen = np.sort(np.argsort(keys, kind="stable")[: self._most])
        self._keys, self._kept = keys[chosen], rows[chosen]

    def ended(self) -> None:
        """Predict the rows once for each value of each column."""
        if self._kept is None or not len(self._kept):
            return
        rows = flat(self._kept, self._columns)
        for column, grid in zip(self._columns, self._grids, strict=True):
            values = rows[:, column].copy()
            sums = []
            for value in grid:
                self._studied.tick()
                rows[:, column] = value
                sums.append(self._predicted(self._kept).sum(axis=0).tolist())
            rows[:, column] = values
            self._sums.append(sums)

    def _predicted(self, features: np.ndarray) -> np.ndarray:
        """Probabilities of all classes, or the only number, of rows."""
        (output,), recipe = self._studied.scorer.predict(features), self._studied.recipe
        (facts,), (spec,) = recipe.targets.each, recipe.outputs
        if facts.kind == "class":
            return probabilities(output.astype(np.float64), spec.loss, facts.num_classes)
        return output.astype(np.float64).reshape(len(output), -1)

    def to_json(self) -> Any:
        """The sums, and how many rows they are of."""
        return {"rows": len(self._keys), "sums": self._sums}

    @classmethod
    def combined(cls, task: Fields, recipe: Recipe, parts: Sequence[Any]) -> Any:
        """The rows, and the means: of each column, value and class."""
        used = [part for part in parts if part["rows"]]
        rows = sum(part["rows"] for part in used)
        columns = zip(*(part["sums"] for part in used), strict=True)
        means = [(np.sum(one, axis=0) / rows).tolist() if len(one[0]) else [] for one in columns]
        return {"rows": rows, "means": means}


def _grid(column: Fields) -> np.ndarray:
    """The features of each value of a column."""
    width = column.integer("stop", 0, MAX_PLACE) - column.integer("start", 0, MAX_PLACE)
    values = np.asarray(column.raw("grid"), np.float32).reshape(-1, width)
    if not np.isfinite(values).all():
        raise InvalidArgument("study: got a value that is no number")
    return values
