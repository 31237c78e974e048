"""Permutation importance: what loss and metrics become when the values of a column are those of other rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from cerebro_db.training.environment import computing
from cerebro_db.training.fields import Fields
from cerebro_db.training.recipe import Recipe
from cerebro_db.training.scores.studies.study import MAX_PLACE, Studied, Study, columns_of, flat
from cerebro_db.training.scores.sums import Partial, add_partials


class Importance(Study):
    """Sums of loss and metrics with each column permuted, so many times.

    In a chunk each row gets the values of another row, along a cycle through all rows in an order of the seed. All
    features of a column go together.
    """

    kind = "importance"

    def __init__(self, task: Fields, studied: Studied) -> None:
        super().__init__(task, studied)
        self._columns, self._repeats = columns_of(task), task.integer("repeats", 1, MAX_PLACE)
        self._seed = task.integer("seed") % 2**64
        self._sums: list[list[Partial | None]] = [[None] * self._repeats for _ in self._columns]

    def chunk(self, number: int, features: np.ndarray, targets: list[np.ndarray]) -> None:
        """Score the rows once for each column and repeat."""
        rows = flat(features, self._columns)
        for place, column in enumerate(self._columns):
            values = rows[:, column].copy()
            for repeat in range(self._repeats):
                self._studied.tick()
                order = self._order(len(rows), number, place, repeat)
                rows[:, column] = values[order]
                found = self._studied.scorer.measure(features, *targets)
                known = self._sums[place][repeat]
                self._sums[place][repeat] = add_partials([known, found]) if known else found
            rows[:, column] = values

    def _order(self, rows: int, *numbers: int) -> np.ndarray:
        """For each row another one whose values it gets."""
        generator = np.random.default_rng([self._seed, self._studied.partition_key, *numbers])
        cycle = generator.permutation(rows)
        order = np.empty_like(cycle)
        order[cycle] = np.roll(cycle, 1)
        return order

    def to_json(self) -> Any:
        """Sums of each column and repeat."""
        return [[one and one.to_json() for one in each] for each in self._sums]

    @classmethod
    def combined(cls, task: Fields, recipe: Recipe, parts: Sequence[Any]) -> Any:
        """The loss, and the metrics, of each column and repeat; metrics only where one is wanted."""
        wants_metrics = task.flag("metrics")
        return [
            [_values(recipe, sums, wants_metrics) for sums in zip(*each, strict=True)]
            for each in zip(*parts, strict=True)
        ]


def _values(recipe: Recipe, sums: Sequence[Any], wants_metrics: bool) -> list[float]:
    total = add_partials([Partial.from_json(one) for one in sums])
    if not wants_metrics:
        return [total.loss(recipe.outputs)]
    metrics = computing(recipe.backend).metrics(recipe, total)
    return [total.loss(recipe.outputs), *metrics, *total.loss_of_each(recipe.outputs)]
