"""A decision tree on one column: where to cut it, so that the target differs most between the parts."""

from __future__ import annotations

import heapq
from collections.abc import Mapping

import numpy as np

from cerebro_db.columns.surveys import Group

# Of the target's impurity times rows: what a cut must gain at least, and what is a difference between two cuts.
_NEGLIGIBLE = 1e-9


def cuts(groups: Mapping[int, Group], bins: int, leaves: int, least: int) -> list[int]:
    """The bins before which a tree cuts, sorted: the cut that gains most comes first, until there are enough leaves.

    What is gained is impurity (Gini) of classes, and variance of a number, each times rows; of equal cuts the first one
    is taken.

    Args:
        groups: the target in the bins that have rows.
        bins: how many there are.
        leaves: most parts.
        least: rows of a part.
    """
    if not groups:
        return []
    width = len(next(iter(groups.values())).sums)
    table = np.zeros((bins + 1, width + 1))
    for place, group in groups.items():
        table[place + 1] = (group.rows, *group.sums)
    until = table.cumsum(axis=0)
    found: list[int] = []
    waiting = [_best(until, 0, bins, least)]
    while len(found) < leaves - 1 and waiting:
        gain, cut, first, last = heapq.heappop(waiting)
        if not gain:
            break
        found.append(cut)
        heapq.heappush(waiting, _best(until, first, cut, least))
        heapq.heappush(waiting, _best(until, cut, last, least))
    return sorted(found)


def _best(until: np.ndarray, first: int, last: int, least: int) -> tuple[float, int, int, int]:
    """The best cut of some bins: what it gains, with the sign that a heap wants, the cut, and the bins."""
    nothing = (0.0, last, first, last)
    if last - first < 2:
        return nothing
    left = until[first + 1 : last] - until[first]
    right = until[last] - until[first + 1 : last]
    allowed = (left[:, 0] >= least) & (right[:, 0] >= least)
    if not allowed.any():
        return nothing
    whole = _explained((until[last] - until[first])[np.newaxis])[0]
    gains = np.where(allowed, _explained(left) + _explained(right) - whole, 0.0)
    unit = _NEGLIGIBLE * until[-1, 0]
    steps = np.floor(gains / unit)
    place = int(np.argmax(steps))
    return (-max(0.0, float(steps[place])), first + 1 + place, first, last)


def _explained(parts: np.ndarray) -> np.ndarray:
    """The sum of squares of what is in each part, by its rows."""
    rows = np.maximum(parts[:, 0], 1.0)
    found: np.ndarray = (parts[:, 1:] ** 2).sum(axis=1) / rows
    return found
