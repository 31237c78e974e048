"""Figures from the record of a run's hops: overhead of a hop, idle share of the workers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_HOPS = """
SELECT mst_key, worker, extract(epoch FROM started)::float8, extract(epoch FROM finished)::float8,
       waited, compiled, trained
  FROM cerebro.hops WHERE run_id = %s ORDER BY finished
"""


@dataclass(frozen=True)
class Hop:
    """A row of ``cerebro.hops``, in seconds."""

    mst_key: int
    worker: int
    started: float
    finished: float
    waited: float
    compiled: bool
    trained: float


def read(cursor: Any, run_id: int) -> list[Hop]:
    """The hops of a run in the order of their ends."""
    cursor.execute(_HOPS, (run_id,))
    return [Hop(*row) for row in cursor.fetchall()]


def overhead(hops: list[Hop], steps: Mapping[int, float]) -> float:
    """Mean seconds that a hop takes beyond its steps."""
    return sum(hop.finished - hop.started - steps[hop.mst_key] for hop in hops) / len(hops)


def overhead_between(hops: list[Hop], steps: Mapping[int, float]) -> float:
    """Overhead of a hop with the time between the hops of a worker: waiting, dispatching, sending."""
    workers = len({hop.worker for hop in hops})
    return (workers * span(hops) - sum(steps[hop.mst_key] for hop in hops)) / len(hops)


def idle_share(hops: list[Hop]) -> float:
    """The part of the time between the first and the last hop in which workers had nothing to do.

    The time that a worker waited before each of its hops but the first, and the time from its last
    hop to the last hop of the run.
    """
    end = max(hop.finished for hop in hops)
    idle = 0.0
    by_worker = _by_worker(hops)
    for own in by_worker.values():
        idle += sum(hop.waited for hop in own[1:]) + end - own[-1].finished
    return idle / (len(by_worker) * span(hops))


def longest(hops: list[Hop]) -> float:
    """Ratio of the longest training of a configuration to the shortest, compilation aside."""
    trained: dict[int, float] = {}
    for hop in hops:
        if not hop.compiled:
            trained[hop.mst_key] = trained.get(hop.mst_key, 0.0) + hop.trained
    return max(trained.values()) / min(trained.values())


def span(hops: list[Hop]) -> float:
    """Seconds from the first to the last hop."""
    return max(hop.finished for hop in hops) - min(hop.started for hop in hops)


def _by_worker(hops: list[Hop]) -> dict[int, list[Hop]]:
    found: dict[int, list[Hop]] = {}
    for hop in sorted(hops, key=lambda hop: hop.started):
        found.setdefault(hop.worker, []).append(hop)
    return found
