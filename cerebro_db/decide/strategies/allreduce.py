"""All-reduce: a replica for each partition, whose trainers average their gradients at each step."""

from __future__ import annotations

from collections.abc import Collection

from cerebro_db.core.spec import TRAINING, Hop
from cerebro_db.core.state import RunState, Track
from cerebro_db.core.tasks import Join, Task, WorkerView
from cerebro_db.decide import dispatch
from cerebro_db.decide.strategies.hopper import Hopper


class AllReduce(Hopper):
    """The hops of a round are made together, by as many workers as there are partitions.

    A round begins when so many are free. Whoever has joined waits for the others, so that none does
    anything else before all are there: two rounds never wait for each other's workers. Whether their steps
    are pipelined, or one of them holds the weights for all, is a matter of the trainers.
    """

    def next(self, state: RunState, worker: WorkerView, now: float) -> Task | None:
        """The share of a round that others have begun, else what a hopper does."""
        for hops in state.joinable:
            return _share(state, worker, hops)
        return super().next(state, worker, now)

    def _training(self, state: RunState, worker: WorkerView, held: Collection[int]) -> Task | None:
        """The first share of a round, if there are workers for all of it."""
        together = state.spec.together
        if state.spec.workers.count - len(state.tasks) < together:
            return None
        critical = dispatch.critical_work(state)

        def priority(track: Track) -> tuple[bool, int, float, int]:
            work = track.work
            return work < critical, track.done, -work, track.configuration.mst_key

        ready = [
            track
            for mst_key, track in state.tracks.items()
            if mst_key not in held and len(state.ready(track)) == together
        ]
        if not ready:
            return None
        return _share(state, worker, tuple(sorted(state.ready(min(ready, key=priority)))))


def _share(state: RunState, worker: WorkerView, hops: tuple[Hop, ...]) -> Join:
    """Of the hops that nobody has, one over a partition that a worker has in memory, or the first."""
    waiting = state.tracks[hops[0].mst_key].waiting
    left = [hop for hop in hops if hop in waiting]
    own = next((hop for hop in left if worker.keeps(TRAINING, hop.partition_key)), left[0])
    return Join(hops, hops.index(own), leads=len(left) == 1)
