"""The order of trials by their values; less of each value is better."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt

Values = tuple[float, ...]


def ranked(values: Mapping[int, Values]) -> list[int]:
    """Keys, the best first; equal ones in the order of the keys.

    With several values: by fronts, of which none dominates another of the same; within a front those
    first that are farthest from others, as in NSGA-II.
    """
    if all(len(one) == 1 for one in values.values()):
        return sorted(values, key=lambda key: (values[key], key))
    return [key for front in _fronts(values) for key in _apart(front, values)]


def _fronts(values: Mapping[int, Values]) -> Iterator[list[int]]:
    """Keys by how many fronts are before theirs."""
    keys = sorted(values)
    table = np.array([values[key] for key in keys])
    ours, theirs = table[:, None], table[None]
    worse: npt.NDArray[np.bool_] = np.logical_and(
        np.all(ours <= theirs, axis=2), np.any(ours < theirs, axis=2)
    )
    left: npt.NDArray[np.bool_] = np.ones(len(keys), dtype=bool)
    while left.any():
        front = left & ~worse[left].any(axis=0)
        yield [keys[place] for place in front.nonzero()[0]]
        left &= ~front


def _apart(front: Sequence[int], values: Mapping[int, Values]) -> list[int]:
    """A front, those first whose neighbours are far."""
    distance = dict.fromkeys(front, 0.0)
    for place in range(len(values[front[0]])):
        order = sorted(front, key=lambda key: (values[key][place], key))
        low, high = values[order[0]][place], values[order[-1]][place]
        distance[order[0]] = distance[order[-1]] = math.inf
        if not 0 < high - low < math.inf:
            continue
        for before, key, after in zip(order, order[1:], order[2:], strict=False):
            distance[key] += (values[after][place] - values[before][place]) / (high - low)
    return sorted(front, key=lambda key: (-distance[key], key))
