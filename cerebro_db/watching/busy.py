"""How busy workers were, of hops as arrays of times."""

from __future__ import annotations

import numpy as np


def shares(
    place: np.ndarray, began: np.ndarray, ended: np.ndarray, workers: int, seconds: float, bins: int
) -> np.ndarray:
    """Share of each interval that hops took, by worker: ``float[workers, bins]``."""
    edges = np.linspace(0.0, seconds, bins + 1)
    found = np.zeros((workers, bins))
    for worker in range(workers):
        mine = place == worker
        starts, ends = np.sort(began[mine]), np.sort(ended[mine])
        # Time that hops had taken until each edge: hops of a worker follow one another.
        taken = _until(edges, starts) - _until(edges, ends)
        found[worker] = np.diff(taken) / (seconds / bins)
    return np.clip(found, 0.0, 1.0)


def _until(edges: np.ndarray, moments: np.ndarray) -> np.ndarray:
    """The sum over moments of the time since them, at each edge."""
    count = np.searchsorted(moments, edges, "right")
    sums = np.concatenate([[0.0], np.cumsum(moments)])
    return np.asarray(count * edges - sums[count])
