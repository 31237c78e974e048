"""Steps of a rotation: visits of one plan that all partitions make at the same time."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from cerebro_db.planning.dispatch import Dispatcher
from cerebro_db.planning.orders import Visit


def step_of(ready: Iterable[Visit], work: Mapping[int, float]) -> tuple[Visit, ...]:
    """Returns the visits that are made together, in the order of their partitions.

    Each partition takes, of the visits that wait for it, that of the configuration with the
    longest remaining work. Partitions for which nothing waits take none. As the longest
    configurations are few, long visits mostly meet long ones, and short ones do not wait for them.

    Args:
        ready: the next visit of each configuration.
        work: for each mst_key, the estimated seconds of all that it still has to visit.
    """
    chosen: dict[int, Visit] = {}
    for visit in sorted(ready, key=lambda visit: (-work[visit.mst_key], visit.mst_key)):
        chosen.setdefault(visit.partition_key, visit)
    return tuple(chosen[partition_key] for partition_key in sorted(chosen))


class Rotation(Dispatcher):
    """Hands out steps, with a barrier between them.

    A step follows from the plan and from what of it is done, and from nothing else. What is planned
    is what a dispatcher without barriers hands out: the same visits of each configuration in the
    same order.

    Args:
        partitions: how many there are.
        costs: for each mst_key, the estimated seconds of one hop.
    """

    def __init__(self, partitions: int, costs: Mapping[int, float]) -> None:
        super().__init__(partitions, costs)

    def next_step(self, held: Collection[int] = ()) -> tuple[Visit, ...]:
        """Returns the next step; its visits are in flight until each is `finished`.

        Args:
            held: of configurations that must not go on yet.
        """
        chains = {chain.waiting[0].mst_key: chain for chain in self._ready(0, held)}
        work = {mst_key: chain.work() for mst_key, chain in chains.items()}
        step = step_of((chain.waiting[0] for chain in chains.values()), work)
        for visit in step:
            chain = chains[visit.mst_key]
            chain.in_flight = chain.waiting.popleft()
        return step
