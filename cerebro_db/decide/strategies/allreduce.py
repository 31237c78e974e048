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
            share = _share(state, worker, hops)
            if share is not None:
                return share
        return super().next(state, worker, now)

    def _training(self, state: RunState, worker: WorkerView, held: Collection[int]) -> Task | None:
        """The first share of a round, if there are workers for all of it."""
        critical = dispatch.critical_work(state)
        ready = [
            (round_priority(track, critical), hops)
            for mst_key, track in state.active.items()
            if mst_key not in held and (hops := whole_round(state, track))
        ]
        return begun(state, worker, min(ready)[1]) if ready else None


RoundPriority = tuple[bool, int, float, int]


def round_priority(track: Track, critical: float) -> RoundPriority:
    """By which rounds and hops come first: what is critical, the lower epoch, the most work left."""
    work = track.work
    return work < critical, track.waiting[0].epoch, -work, track.configuration.mst_key


def whole_round(state: RunState, track: Track) -> tuple[Hop, ...]:
    """The hops of a round that nobody has begun; none where a configuration has no such round."""
    if not track.waiting or not state.spec.is_joined(track.waiting[0]):
        return ()
    ready = tuple(sorted(state.ready(track)))
    return ready if len(ready) == state.spec.round_size(track.waiting[0]) else ()


def begun(state: RunState, worker: WorkerView, hops: tuple[Hop, ...]) -> Join | None:
    """The first share of a round, where workers are free for all of it; None where some are not."""
    workers = state.spec.workers
    free = [number for number in range(workers.count) if number not in state.tasks]
    if workers.bound:
        owners = {hop.partition_key % workers.count for hop in hops}
        is_free = len(owners) == len(hops) and owners <= set(free)
    else:
        is_free = len(free) >= len(hops)
    return _share(state, worker, hops) if is_free else None


def _share(state: RunState, worker: WorkerView, hops: tuple[Hop, ...]) -> Join | None:
    """Of the hops that nobody has, one over a partition that a worker has in memory, or the first.

    None where all of them are over partitions of other workers.
    """
    waiting, serves = state.tracks[hops[0].mst_key].waiting, state.spec.workers.serves
    left = [hop for hop in hops if hop in waiting]
    own = [hop for hop in left if serves(worker.number, hop.partition_key)]
    if not own:
        return None
    taken = next((hop for hop in own if worker.keeps(TRAINING, hop.partition_key)), own[0])
    return Join(hops, hops.index(taken), leads=len(left) == 1)
