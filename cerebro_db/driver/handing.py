"""Which visits a worker makes by its next statement."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Sequence

from cerebro_db.planning.dispatch import Dispatcher
from cerebro_db.planning.orders import Visit

# Hops that take no longer together share a statement, whose own cost is much in comparison. A
# longer hop of another configuration would wait for them, and it may be what decides the end.
SHARED_SECONDS = 0.2


class Handing:
    """Hands out the visits of a dispatcher: short ones together, where one statement can make them.

    Args:
        dispatcher: of the run.
        serves: whether a worker, by its number, can train on a partition.
        most: hops of one partition that a statement may make.
        ended: called with a visit that is done because its configuration is.
    """

    def __init__(
        self,
        dispatcher: Dispatcher,
        serves: Callable[[int, int], bool],
        most: int,
        ended: Callable[[Visit], None],
    ) -> None:
        self._dispatcher, self._serves, self._most = dispatcher, serves, most
        self._ended = ended
        # Of the last hop of each configuration. The first one is made alone: it may start from
        # weights of a model, and nobody knows how long it takes.
        self._seconds: dict[int, float] = {}
        self._alone: list[Visit] = []

    def took(self, mst_key: int, seconds: float) -> None:
        """A hop of a configuration has taken so long, its share of the statement included."""
        self._seconds[mst_key] = seconds

    def longest(self) -> float:
        """Seconds of the longest last hop of those that go on; infinite where one has made none."""
        going_on = self._dispatcher.going_on()
        return max((self._seconds.get(mst_key, math.inf) for mst_key in going_on), default=0.0)

    def one_by_one(self, visits: Iterable[Visit]) -> None:
        """A statement has failed: which of its visits that is about is found by making each alone."""
        self._alone += visits

    def next(
        self,
        worker: int,
        kept: Collection[int],
        held: Collection[int],
        alive: Collection[int],
    ) -> tuple[Visit, ...]:
        """What a free worker makes now; nothing where it has to wait.

        Args:
            worker: its number.
            kept: partitions that it has in memory; only those are trained on by several at once.
            held: configurations that must not go on yet.
            alive: those that go on at all.
        """
        alone = self.next_alone(worker, alive)
        if alone is not None:
            return (alone,)

        def fit(visits: Sequence[Visit]) -> bool:
            if len(visits) > self._most or visits[0].partition_key not in kept:
                return False
            return sum(self._seconds[visit.mst_key] for visit in visits) <= SHARED_SECONDS

        if self.longest() <= SHARED_SECONDS:
            return self._dispatcher.next_visits(worker, kept, held, fit)
        return self._dispatcher.next_visits(worker, kept, held)

    def next_alone(self, worker: int, alive: Collection[int]) -> Visit | None:
        """One of the visits that are made one by one; those of configurations that have ended are done."""
        for visit in [v for v in self._alone if self._serves(worker, v.partition_key)]:
            self._alone.remove(visit)
            if visit.mst_key in alive:
                return visit
            self._ended(visit)
        return None
