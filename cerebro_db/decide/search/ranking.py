"""The order of trials by their values; less of each value is better.

NumPy is imported late: requests are checked, and drivers begin, without it.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

Values = tuple[float, ...]
_Table: TypeAlias = "npt.NDArray[np.float64]"
_Numbers: TypeAlias = "npt.NDArray[np.int64]"


class Ranking:
    """Trials in their order, of which more and more are known."""

    def __init__(self) -> None:
        self._values: dict[int, Values] = {}
        self._order: list[tuple[Values, int]] = []

    def __len__(self) -> int:
        return len(self._values)

    def __contains__(self, key: int) -> bool:
        return key in self._values

    def add(self, key: int, values: Values) -> None:
        """A trial has values."""
        if key in self._values:
            del self._order[bisect_left(self._order, (self._values[key], key))]
        self._values[key] = values
        insort(self._order, (values, key))

    def best(self, count: int) -> list[int]:
        """So many keys, the best first."""
        if not self._order or len(self._order[0][0]) == 1:
            return [key for _, key in self._order[:count]]
        return ranked(self._values)[:count]


def ranked(values: Mapping[int, Values]) -> list[int]:
    """Keys, the best first; equal ones in the order of the keys.

    With several values: by fronts, of which none dominates another of the same; within a front those
    first that are farthest from others, as in NSGA-II (Deb et al., 2002).
    """
    keys = sorted(values)
    if not keys or len(values[keys[0]]) == 1:
        return sorted(keys, key=lambda key: (values[key], key))
    import numpy as np

    table = np.array([values[key] for key in keys])
    numbers = _fronts(table)
    order = np.lexsort((-_distances(table, numbers), numbers))
    return [keys[place] for place in order]


def fronts(values: Mapping[int, Values]) -> list[list[int]]:
    """Keys by how many fronts are before theirs; the first ones are the Pareto set."""
    keys = sorted(values)
    if not keys:
        return []
    import numpy as np

    numbers = _fronts(np.array([values[key] for key in keys]))
    found: list[list[int]] = [[] for _ in range(int(numbers.max()) + 1)]
    for key, number in zip(keys, numbers, strict=True):
        found[number].append(key)
    return found


def _fronts(table: _Table) -> _Numbers:
    """The number of each row's front.

    Args:
        table: ``float64[trials, values]``.
    """
    return _fronts_of_two(table) if table.shape[1] <= 2 else _fronts_of_more(table)


def _fronts_of_two(table: _Table) -> _Numbers:
    """The number of each row's front by a sweep: of the rows before, only the least of each front can dominate one that comes."""
    import numpy as np

    found = np.zeros(len(table), dtype=np.int64)
    least: list[tuple[float, float]] = []
    for place in np.lexsort(table.T[::-1]):
        pair = float(table[place, -1]), float(table[place, 0])
        number = bisect_left(least, pair)
        least[number : number + 1] = [pair]
        found[place] = number
    return found


def _fronts_of_more(table: _Table) -> _Numbers:
    """The number of each row's front by all pairs of rows."""
    import numpy as np

    at_most: npt.NDArray[np.bool_] = np.ones((len(table), len(table)), dtype=bool)
    for column in table.T:
        at_most &= column[:, None] <= column
    dominates = at_most & ~at_most.T
    dominating = np.count_nonzero(dominates, axis=0)
    found = np.full(len(table), -1)
    number = 0
    while (found < 0).any():
        front = (found < 0) & (dominating == 0)
        found[front] = number
        dominating -= np.count_nonzero(dominates[front], axis=0)
        number += 1
    return found


def _distances(table: _Table, numbers: _Numbers) -> _Table:
    """Crowding distance of each row in its front: between its neighbours, the sum over all values."""
    import numpy as np

    found = np.zeros(len(table))
    for column in table.T:
        order = np.lexsort((column, numbers))
        values, groups = column[order], numbers[order]
        is_first = np.append(True, groups[1:] != groups[:-1])
        is_last = np.append(is_first[1:], True)
        part = np.zeros(len(table))
        with np.errstate(invalid="ignore"):  # of values that are infinite
            width = values[is_last][groups] - values[is_first][groups]
            part[1:-1] = values[2:] - values[:-2]
            counts = (width > 0) & (width < math.inf)
            part = np.divide(part, width, out=np.zeros(len(table)), where=counts)
        part[is_first | is_last] = math.inf
        found[order] += part
    return found
