"""The plan: who trains where in which order, from the seed and static costs alone.

NumPy is imported late: workers begin before the first epoch is planned.
"""

from __future__ import annotations

import functools
import heapq
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from cerebro_db.core.spec import TRAINING, Hop
from cerebro_db.core.state import RunState, check_cost
from cerebro_db.errors import InvalidArgument

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


_AHEAD = 20_000  # hops that are planned at once, where epochs are small
# Configurations of a partition from which on looking at all of them for each hop takes longer.
_MANY = 256


def plan_cohorts(state: RunState) -> list[Hop]:
    """Hops that are to be planned now: of the epoch after the present one of each configuration.

    The order of a cohort's hops depends on the seed, the costs of its members and the partitions, and
    on nothing that happens: a member that is promoted later is planned as if it had been before.
    """
    behind = [state.tracks[key] for key in sorted(state.behind)]
    if not behind:
        return []
    ahead = min(track.planned for track in behind)
    ahead += max(2, _AHEAD // (len(state.tracks) * state.spec.hops_an_epoch))
    hops: list[Hop] = []
    for cohort in sorted({track.configuration.cohort for track in behind}):
        members = [state.tracks[key] for key in state.cohorts[cohort]]
        late = [track.planned for track in behind if track.configuration.cohort == cohort]
        first = min(late) + 1
        last = min(ahead, max(track.budget for track in members))
        for epoch in range(first, last + 1):
            wanted = {
                track.configuration.mst_key
                for track in members
                if track.planned < epoch <= track.budget
            }
            planned = state.spec.strategy.epoch(state, cohort, epoch)
            hops += [hop for hop in planned if hop.mst_key in wanted]
    return hops


def planned_again(state: RunState, mst_key: int) -> list[Hop]:
    """Hops that were planned of a configuration which was stopped, and goes on from its last epoch."""
    track = state.tracks[mst_key]
    if track.waiting or track.in_flight:
        return []
    epochs = range(track.done // state.spec.hops_an_epoch + 1, track.planned + 1)
    cohort = track.configuration.cohort
    planned = (state.spec.strategy.epoch(state, cohort, epoch) for epoch in epochs)
    return [hop for hops in planned for hop in hops if hop.mst_key == mst_key]


def epoch_of_cohort(state: RunState, cohort: int, epoch: int) -> tuple[Hop, ...]:
    """The hops of an epoch of a whole cohort, one after another for each configuration."""
    return _epoch_of(*_inputs(state, cohort, epoch))


def epoch_of_configuration(state: RunState, mst_key: int, epoch: int) -> Sequence[Hop]:
    """The hops of an epoch of one configuration, by the plan of its cohort."""
    cohort = state.tracks[mst_key].configuration.cohort
    return _by_key(_inputs(state, cohort, epoch))[mst_key]


_Inputs = tuple[tuple[tuple[int, float], ...], tuple[int, ...], int, int, int]


def _inputs(state: RunState, cohort: int, epoch: int) -> _Inputs:
    """Inputs of the plan of a cohort's epoch: costs, partitions, seed, epoch and cohort."""
    keys = state.cohorts[cohort]
    costs = tuple((key, state.tracks[key].configuration.hop_seconds) for key in keys)
    return costs, state.spec.partitions[TRAINING], state.spec.seed, epoch, cohort


@functools.lru_cache(maxsize=64)
def _epoch_of(
    costs: tuple[tuple[int, float], ...],
    partitions: tuple[int, ...],
    seed: int,
    epoch: int,
    cohort: int,
) -> tuple[Hop, ...]:
    return plan_epoch(dict(costs), partitions, seed, epoch, cohort)


@functools.lru_cache(maxsize=8)
def _by_key(inputs: _Inputs) -> dict[int, list[Hop]]:
    found: dict[int, list[Hop]] = {}
    for hop in _epoch_of(*inputs):
        found.setdefault(hop.mst_key, []).append(hop)
    return found


def next_partitions(state: RunState, hop: Hop) -> list[int]:
    """The partitions of the hops of a configuration that begin with the state that this one leaves.

    Of one hop, or of those of a round that are made together. Where the plan goes no further yet, these
    may be any; none at the end of what it is trained for. Where it may be promoted, that is where it
    would go then.
    """
    track, version = state.tracks[hop.mst_key], state.spec.left(hop)
    keys = [other.partition_key for other in track.waiting if state.spec.base(other) == version]
    if keys:
        return keys
    if not state.spec.is_open:
        is_last = version == track.budget * state.spec.hops_an_epoch
        may_be_joined = state.spec.strategy.largest_group > 1 and not is_last
        return list(state.spec.partitions[TRAINING]) if may_be_joined else []
    upcoming = state.spec.strategy.epoch(state, track.configuration.cohort, hop.epoch + 1)
    return [next(one.partition_key for one in upcoming if one.mst_key == hop.mst_key)]


def plan_epoch(
    costs: Mapping[int, float],
    partitions: Sequence[int],
    seed: int,
    epoch: int,
    cohort: int = 0,
) -> tuple[Hop, ...]:
    """Returns the hops of one epoch, in the order in which the simulated schedule starts them.

    The schedule has one worker per partition. A free worker takes, of the configurations that are
    free and have not visited its partition, the one with the longest remaining work; equal ones
    are distinguished by random numbers. So workers that are pinned to partitions seldom want the
    same configuration at the same time, and long configurations do not come last.

    Args:
        costs: for each mst_key, the estimated seconds of one hop; only the ratios matter.
        partitions: the partition keys, in any order.
        seed, epoch, cohort: not negative; with the costs, all that the plan depends on.
    """
    _check(costs, partitions, seed, epoch)
    entropy = [seed, epoch, cohort] if cohort else [seed, epoch]
    is_many = len(costs) > _MANY * len(partitions)
    schedule = (_LargeSchedule if is_many else _Schedule)(costs, partitions, entropy)
    return tuple(schedule.hops(epoch))


def plan_rounds(
    keys: Sequence[int], partitions: Sequence[int], rounds: int, epoch: int, size: int = 1
) -> tuple[Hop, ...]:
    """Returns the hops of one epoch where those of a round are made side by side.

    Args:
        keys: of configurations.
        partitions: each has a hop in every round.
        rounds: of the epoch.
        epoch: from 1.
        size: hops of a round that are made together.
    """
    places = sorted(partitions) * rounds
    return tuple(
        Hop(mst_key, epoch, position, partition_key, size)
        for mst_key in sorted(keys)
        for position, partition_key in enumerate(places)
    )


def plan_groups(
    mst_key: int, place: int, partitions: Sequence[int], size: int, seed: int, epoch: int
) -> list[Hop]:
    """Returns the hops of one epoch of a configuration of which so many are made together.

    Partitions are shuffled for all configurations alike, and each begins at another round: where
    partitions belong to workers, groups of different configurations seldom want the same ones.

    Args:
        mst_key: of the configuration.
        place: of it among those that are planned together, from 0.
        partitions: the partition keys, in any order.
        size: hops of a group; rounds of them make up the epoch.
        seed, epoch: all else that the order depends on.
    """
    import numpy as np

    _check({}, partitions, seed, epoch)
    generator = np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed, epoch])))
    shuffled = [int(one) for one in generator.permutation(sorted(partitions))]
    first = place % (len(shuffled) // size) * size
    ordered = shuffled[first:] + shuffled[:first]
    return [
        Hop(mst_key, epoch, position, partition_key, size)
        for position, partition_key in enumerate(ordered)
    ]


class _Schedule:
    """The simulated list schedule; rows are configurations, columns are partitions."""

    def __init__(
        self, costs: Mapping[int, float], partitions: Sequence[int], entropy: Sequence[int]
    ) -> None:
        import numpy as np

        self._keys = sorted(costs)
        self._partitions = sorted(partitions)
        self._costs = np.array([float(costs[key]) for key in self._keys])
        generator = np.random.Generator(np.random.PCG64(np.random.SeedSequence(entropy)))
        shape = (len(self._keys), len(self._partitions))
        self._ties: npt.NDArray[np.float64] = generator.random(shape)
        self._worker_order = generator.permutation(shape[1])
        self._to_visit = np.ones(shape, dtype=bool)
        self._free = np.ones(shape[0], dtype=bool)
        # Counts, not sums of times: equal work must compare equal.
        self._left = np.full(shape[0], shape[1])

    def hops(self, epoch: int) -> Iterator[Hop]:
        """Runs the simulation; yields each hop as it starts."""
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
                yield Hop(self._keys[row], epoch, position, self._partitions[worker])
                self._start(row, worker)
                heapq.heappush(running, (now + float(self._costs[row]), row, worker))
            if not running:
                return
            now, finished = _next_finished(running)
            for row, _ in finished:
                self._release(row)
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

    def _release(self, row: int) -> None:
        self._free[row] = True


class _LargeSchedule(_Schedule):
    """Simulated list schedule for very many configurations: a hop costs about the same with any number of them.

    Each worker has a heap of the configurations that are free, in the order in which it chooses. What
    has made a hop since it came there is left out when it comes first.
    """

    def __init__(
        self, costs: Mapping[int, float], partitions: Sequence[int], entropy: Sequence[int]
    ) -> None:
        super().__init__(costs, partitions, entropy)
        # Lists, of which single items are read faster.
        self._cost: list[float] = self._costs.tolist()
        self._tie: list[list[float]] = self._ties.tolist()
        self._hops_left: list[int] = self._left.tolist()
        self._heaps = [
            [self._entry(row, worker) for row in range(len(self._keys))]
            for worker in range(len(self._partitions))
        ]
        for heap in self._heaps:
            heapq.heapify(heap)

    def _entry(self, row: int, worker: int) -> tuple[float, float, int, int]:
        left = self._hops_left[row]
        return -self._cost[row] * left, -self._tie[row][worker], row, left

    def _choose(self, worker: int) -> int | None:
        heap = self._heaps[worker]
        while heap and heap[0][3] != self._hops_left[heap[0][2]]:
            heapq.heappop(heap)
        return heap[0][2] if heap else None

    def _start(self, row: int, worker: int) -> None:
        super()._start(row, worker)
        self._hops_left[row] -= 1

    def _release(self, row: int) -> None:
        for worker in self._to_visit[row].nonzero()[0].tolist():
            heapq.heappush(self._heaps[worker], self._entry(row, worker))


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
