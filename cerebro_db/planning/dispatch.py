"""The dispatch rule: which planned visit a free worker takes next. A state machine without I/O."""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from cerebro_db.errors import InvalidArgument
from cerebro_db.planning.orders import Visit, check_cost

# A chain is critical a little before it alone decides when the run ends.
CRITICAL_SHARE = 0.9


class _Chain:
    """What one configuration still has to visit, in plan order."""

    def __init__(self, cost: float) -> None:
        self.cost = cost
        self.waiting: deque[Visit] = deque()
        self.in_flight: Visit | None = None

    def work(self) -> float:
        """Estimated seconds of all visits that are not finished."""
        return self.cost * (len(self.waiting) + (self.in_flight is not None))


class Dispatcher:
    """Hands visits to workers, without barriers.

    A configuration's visits run one at a time and in plan order. Nothing else waits: a free worker
    takes the ready visit that comes first by

    1. being of a configuration on the critical path: its remaining work is at least 0.9 of what
       every worker would have to do if all remaining work were spread evenly,
    2. the lower epoch,
    3. the longer remaining work of the configuration,
    4. a partition that this worker has cached,
    5. the lower mst_key.

    The plan may be extended while it runs.

    Args:
        num_workers: how many workers take visits.
        costs: for each mst_key, the estimated seconds of one hop.
        serves: whether a worker can train on a partition; by default every worker serves all.
    """

    def __init__(
        self,
        num_workers: int,
        costs: Mapping[int, float],
        serves: Callable[[int, int], bool] = lambda worker, partition: True,
    ) -> None:
        if num_workers < 1:
            raise InvalidArgument(f"num_workers: got {num_workers}; it must be at least 1")
        self._num_workers = num_workers
        self._serves = serves
        self._chains: dict[int, _Chain] = {}
        self._dropped: set[int] = set()
        self._unfinished: Counter[int] = Counter()
        self._epochs: set[int] = set()
        for mst_key, cost in costs.items():
            self.add_configuration(mst_key, cost)

    def add_configuration(self, mst_key: int, cost: float) -> None:
        """Makes a configuration known; its visits come by `add_visits`."""
        check_cost(mst_key, cost)
        if mst_key in self._chains or mst_key in self._dropped:
            raise InvalidArgument(f"mst_key: got {mst_key}, which is known already")
        self._chains[mst_key] = _Chain(cost)

    def add_visits(self, visits: Iterable[Visit]) -> None:
        """Extends the plan; each visit must come after those already planned for its configuration.

        Visits of dropped configurations are left out.
        """
        for visit in sorted(visits):
            self._epochs.add(visit.epoch)
            if visit.mst_key in self._dropped:
                continue
            chain = self._chain(visit.mst_key)
            last = chain.waiting[-1] if chain.waiting else chain.in_flight
            if last is not None and visit <= last:
                raise InvalidArgument(f"visits: got {visit} after {last}; allowed are later ones")
            chain.waiting.append(visit)
            self._unfinished[visit.epoch] += 1

    def add_finished(self, epochs: Iterable[int]) -> None:
        """Makes epochs known of which visits were finished before this began."""
        self._epochs.update(epochs)

    def next_visit(
        self, worker: int, cached: Collection[int] = (), held: Collection[int] = ()
    ) -> Visit | None:
        """Returns the visit that a free worker takes now, or None where it has to wait.

        The visit is in flight until `finished`.

        Args:
            worker: its number.
            cached: partitions that it has in memory.
            held: of configurations that must not go on yet.
        """
        return next(iter(self.next_visits(worker, cached, held)), None)

    def next_visits(
        self,
        worker: int,
        cached: Collection[int] = (),
        held: Collection[int] = (),
        fit: Callable[[Sequence[Visit]], bool] = lambda visits: False,
    ) -> tuple[Visit, ...]:
        """Returns visits of one partition that a free worker makes together, the first one first.

        They end together, and what they let others do waits for that: no worker takes more than
        its share of the configurations that still have something to visit.

        Args:
            worker, cached, held: as in `next_visit`.
            fit: whether these visits may be made together.
        """
        critical = self._critical_work()

        def priority(chain: _Chain) -> tuple[bool, int, float, bool, int]:
            visit, work = chain.waiting[0], chain.work()
            uncached = visit.partition_key not in cached
            return work < critical, visit.epoch, -work, uncached, visit.mst_key

        ready = sorted(self._ready(worker, held), key=priority)
        where = {chain.waiting[0].partition_key for chain in ready[:1]}
        there = [chain for chain in ready if chain.waiting[0].partition_key in where]
        taken = there[:1]
        share = math.ceil(len(self.going_on()) / self._num_workers)
        for chain in there[1:]:
            if len(taken) < share and fit([one.waiting[0] for one in (*taken, chain)]):
                taken.append(chain)
        for chain in taken:
            chain.in_flight = chain.waiting.popleft()
        return tuple(chain.in_flight for chain in taken if chain.in_flight)

    def is_pressing(self, worker: int, held: Collection[int] = ()) -> bool:
        """Whether what decides when the run ends is ready for a free worker, and all else can wait.

        At most half as many configurations are critical as there are workers, so that one is soon
        free for all else; and no critical configuration is held, which may wait for just that.

        Args:
            worker, held: as in `next_visit`.
        """
        least = self._critical_work()
        critical = {key for key, chain in self._chains.items() if chain.work() >= least}
        if 2 * len(critical) > self._num_workers or not critical.isdisjoint(held):
            return False
        return any(chain.work() >= least for chain in self._ready(worker, held))

    def finished(self, visit: Visit) -> None:
        """Tells that a visit in flight is done."""
        chain = self._chain(visit.mst_key)
        if chain.in_flight != visit:
            raise InvalidArgument(f"visit: got {visit}; in flight is {chain.in_flight}")
        chain.in_flight = None
        self._unfinished[visit.epoch] -= 1

    def drop(self, mst_key: int) -> None:
        """Takes away what a failed or stopped configuration still had to visit.

        A visit in flight stays so until `finished`.
        """
        chain = self._chain(mst_key)
        self._dropped.add(mst_key)
        for visit in chain.waiting:
            self._unfinished[visit.epoch] -= 1
        chain.waiting.clear()

    @property
    def remaining(self) -> int:
        """Number of visits that are not finished, those in flight included."""
        return self._unfinished.total()

    @property
    def done(self) -> bool:
        """Whether every planned visit is finished."""
        return self.remaining == 0

    def going_on(self) -> list[int]:
        """The configurations that have visits planned that are not finished."""
        return [mst_key for mst_key, chain in self._chains.items() if chain.work() > 0]

    def epoch_done(self, epoch: int) -> bool:
        """Whether an epoch was planned, and all its visits are finished."""
        return epoch in self._epochs and self._unfinished[epoch] == 0

    def _ready(self, worker: int, held: Collection[int]) -> list[_Chain]:
        return [
            chain
            for mst_key, chain in self._chains.items()
            if mst_key not in held
            and chain.in_flight is None
            and chain.waiting
            and self._serves(worker, chain.waiting[0].partition_key)
        ]

    def _critical_work(self) -> float:
        work = sum(chain.work() for chain in self._chains.values())
        return CRITICAL_SHARE * work / self._num_workers

    def _chain(self, mst_key: int) -> _Chain:
        if mst_key not in self._chains:
            raise InvalidArgument(f"mst_key: got {mst_key}; known are {sorted(self._chains)[:20]}")
        return self._chains[mst_key]
