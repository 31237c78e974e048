"""Isotonic regression: the rising steps nearest to values, by pooling neighbours that fall (Zadrozny and Elkan 2002)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class Ramps(NamedTuple):
    """A rising function: a first value, and ramps with the places where each begins and ends, and how far it rises.

    Between ramps the function is constant. There may be none.
    """

    first: float
    begins: np.ndarray
    ends: np.ndarray
    rises: np.ndarray

    def at(self, places: np.ndarray) -> np.ndarray:
        """The values of the function."""
        knots = np.stack([self.begins, self.ends], axis=1).ravel()
        values = self.first + np.cumsum(self.rises)
        levels = np.repeat([self.first, *values], 2)[1:-1]
        if not len(knots):
            return np.full(len(places), self.first)
        found: np.ndarray = np.interp(places, knots, levels)
        return found


def isotonic(scores: np.ndarray, truth: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The steps of the rising function of scores with the least squares: first and last score, and value, of each.

    Args:
        scores: of rows.
        truth: of the same rows, 0 or 1.
    """
    places, groups = np.unique(scores, return_inverse=True)
    weights = np.bincount(groups).astype(np.float64)
    means = np.bincount(groups, truth) / weights
    starts: list[int] = []
    values: list[float] = []
    sizes: list[float] = []
    for place, (value, size) in enumerate(zip(means.tolist(), weights.tolist(), strict=True)):
        start = place
        while values and values[-1] >= value:
            before, rows = values.pop(), sizes.pop()
            value, size = (before * rows + value * size) / (rows + size), rows + size
            start = starts.pop()
        starts.append(start)
        values.append(value)
        sizes.append(size)
    ends = np.append(np.asarray(starts[1:], np.int64) - 1, len(places) - 1)
    return places[starts], places[ends], np.asarray(values)


def ramps_of(first: np.ndarray, last: np.ndarray, values: np.ndarray) -> Ramps:
    """Ramps from the end of a step to the beginning of the next one.

    Args:
        first, last, values: of steps, whose values rise or stay.
    """
    rises = np.diff(values)
    kept = rises > 0
    return Ramps(float(values[0]), last[:-1][kept], first[1:][kept], rises[kept])
