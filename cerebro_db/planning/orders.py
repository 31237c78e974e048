"""Visiting orders: who visits which partition when, from the seed and static costs alone.

NumPy is imported late: workers begin before the first epoch is planned.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cerebro_db.errors import InvalidArgument

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


@dataclass(frozen=True, order=True)
class Visit:
    """A planned hop: in `epoch`, as its visit number `position`, a configuration trains there."""

    mst_key: int
    epoch: int
    position: int
    partition_key: int


def plan_epoch(
    costs: Mapping[int, float], partitions: Sequence[int], seed: int, epoch: int
) -> tuple[Visit, ...]:
    """Returns the visits of one epoch, in the order in which the simulated schedule starts them.

    The schedule has one worker per partition. A free worker takes, of the configurations that are
    free and have not visited its partition, the one with the longest remaining work; equal ones
    are told apart by random numbers. So workers that are pinned to partitions seldom want the
    same configuration at the same time, and long configurations do not come last.

    Args:
        costs: for each mst_key, the estimated seconds of one hop; only the ratios matter.
        partitions: the partition keys, in any order.
        seed, epoch: not negative; with the costs, all that the plan depends on.
    """
    _check(costs, partitions, seed, epoch)
    schedule = _Schedule(costs, partitions, seed, epoch)
    return tuple(schedule.visits(epoch))


class _Schedule:
    """The simulated list schedule; rows are configurations, columns are partitions."""

    def __init__(
        self, costs: Mapping[int, float], partitions: Sequence[int], seed: int, epoch: int
    ) -> None:
        import numpy as np

        self._keys = sorted(costs)
        self._partitions = sorted(partitions)
        self._costs = np.array([float(costs[key]) for key in self._keys])
        generator = np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed, epoch])))
        shape = (len(self._keys), len(self._partitions))
        self._ties: npt.NDArray[np.float64] = generator.random(shape)
        self._worker_order = generator.permutation(shape[1])
        self._to_visit = np.ones(shape, dtype=bool)
        self._free = np.ones(shape[0], dtype=bool)
        # Counts, not sums of times: equal work must compare equal.
        self._left = np.full(shape[0], shape[1])

    def visits(self, epoch: int) -> Iterator[Visit]:
        """Runs the simulation; yields each visit as it starts."""
        running: list[tuple[float, int, int]] = []
        idle = [int(worker) for worker in self._worker_order]
        now = 0.0
        while True:
            waiting = []
            for worker in idle:
                row = self._choose(worker)
                if row is None:
                    waiting.append(worker)
                    continue
                position = len(self._partitions) - int(self._left[row])
                yield Visit(self._keys[row], epoch, position, self._partitions[worker])
                self._start(row, worker)
                heapq.heappush(running, (now + float(self._costs[row]), row, worker))
            if not running:
                return
            now, finished = _next_finished(running)
            for row, _ in finished:
                self._free[row] = True
            idle = waiting + [worker for _, worker in finished]

    def _choose(self, worker: int) -> int | None:
        rows = (self._free & self._to_visit[:, worker]).nonzero()[0]
        if not len(rows):
            return None
        remaining = self._costs[rows] * self._left[rows]
        longest = rows[remaining == remaining.max()]
        return int(longest[self._ties[longest, worker].argmax()])

    def _start(self, row: int, worker: int) -> None:
        self._to_visit[row, worker] = False
        self._free[row] = False
        self._left[row] -= 1


def _next_finished(running: list[tuple[float, int, int]]) -> tuple[float, list[tuple[int, int]]]:
    """Takes out all that finish at the next moment, so that none is preferred by its number."""
    now = running[0][0]
    finished = []
    while running and running[0][0] == now:
        _, row, worker = heapq.heappop(running)
        finished.append((row, worker))
    return now, finished


def _check(costs: Mapping[int, float], partitions: Sequence[int], seed: int, epoch: int) -> None:
    if len(set(partitions)) != len(partitions):
        raise InvalidArgument(f"partitions: got {list(partitions)}; each is allowed once")
    for mst_key, cost in costs.items():
        check_cost(mst_key, cost)
    for name, value in (("seed", seed), ("epoch", epoch)):
        if value < 0:
            raise InvalidArgument(f"{name}: got {value}; it must be at least 0")


def check_cost(mst_key: int, cost: float) -> None:
    """Refuses a cost that no schedule can be built on."""
    if not (math.isfinite(cost) and cost > 0):
        raise InvalidArgument(f"cost of configuration {mst_key}: got {cost}; it must be above 0")
