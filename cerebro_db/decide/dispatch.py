"""Dispatch: which planned hops a free worker makes next."""

from __future__ import annotations

import math
from collections.abc import Collection

from cerebro_db.core.spec import TRAINING, Hop
from cerebro_db.core.state import RunState, Track
from cerebro_db.core.tasks import WorkerView

# A configuration is critical a little before it alone decides when the run ends.
CRITICAL_SHARE = 0.9
# Hops that take no longer together share a statement, whose own cost is much in comparison. A
# longer hop of another configuration would wait for them, and it may be what decides the end.
SHARED_SECONDS = 0.2


def next_hops(state: RunState, worker: WorkerView, held: Collection[int]) -> tuple[Hop, ...]:
    """The hops of one partition that a free worker makes now; none where it has to wait.

    Hops of a configuration are made one at a time and in the order of the plan. Nothing else waits:
    a free worker takes the ready hop that comes first by

    1. being of a configuration on the critical path: its remaining work is at least 0.9 of what
       every worker would have to do if all remaining work were spread evenly,
    2. the lower epoch; in a search, the earlier end of the hop in its virtual time, as decisions wait
       for results in that order,
    3. the longer remaining work of the configuration,
    4. a partition that this worker has in memory,
    5. the lower mst_key.

    Short hops are made together. They end together, and what they let others do waits for that: no
    worker takes more than its share of the configurations that still have something to do.

    Args:
        state: of the run.
        worker: that is free.
        held: configurations that must be scored before they go on.
    """
    alone = next_alone(state, worker)
    if alone is not None:
        return (alone,)
    critical = critical_work(state)

    def priority(track: Track) -> tuple[bool, float, float, bool, int]:
        hop, work = track.waiting[0], track.work
        away = not worker.keeps(TRAINING, hop.partition_key)
        when = _virtual_end(state, track) if state.spec.is_open else hop.epoch
        return work < critical, when, -work, away, hop.mst_key

    ready = sorted(ready_tracks(state, worker, held), key=priority)
    if not ready:
        return ()
    first, others = ready[0], ready[1:]
    taken = [first]
    # What a hop of several leaves goes to one partition each, and not to those of a round.
    if state.longest_hop <= SHARED_SECONDS and state.spec.largest_group == 1:
        share = math.ceil(len(state.going_on) / state.spec.workers.count)
        for track in others:
            same = track.waiting[0].partition_key == first.waiting[0].partition_key
            if same and len(taken) < share and _fit(state, worker, [*taken, track]):
                taken.append(track)
    return tuple(track.waiting[0] for track in taken)


def _virtual_end(state: RunState, track: Track) -> float:
    """Virtual seconds at which the next hop of a trial ends."""
    (began, epoch), hop = track.since, track.waiting[0]
    epochs = hop.epoch - 1 - epoch + (hop.position + 1) / state.spec.hops_an_epoch
    return began + epochs * track.configuration.hop_seconds * track.pace


def next_alone(state: RunState, worker: WorkerView) -> Hop | None:
    """One of the hops that are made one by one."""
    if worker.only_hops:
        return None
    serves = state.spec.workers.serves
    for hop in state.alone:
        if state.tracks[hop.mst_key].is_alive and serves(worker.number, hop.partition_key):
            return hop
    return None


def is_pressing(state: RunState, worker: WorkerView, held: Collection[int]) -> bool:
    """True if what decides when the run ends is ready for a free worker, and all else can wait.

    At most half as many configurations are critical as there are workers, so that one is soon
    free for all else; and no critical configuration is held, which may wait for just that.
    """
    least = critical_work(state)
    critical = {key for key, track in state.active.items() if track.work >= least}
    if 2 * len(critical) > state.spec.workers.count or not critical.isdisjoint(held):
        return False
    return any(track.work >= least for track in ready_tracks(state, worker, held))


def ready_tracks(state: RunState, worker: WorkerView | None, held: Collection[int]) -> list[Track]:
    """Configurations that may make a hop now, with a worker, or with any of them."""
    serves = state.spec.workers.serves
    return [
        track
        for mst_key, track in state.active.items()
        if mst_key not in held
        and track.in_flight is None
        and track.waiting
        and track.waiting[0].group == 1
        and (worker is None or serves(worker.number, track.waiting[0].partition_key))
    ]


def _fit(state: RunState, worker: WorkerView, tracks: list[Track]) -> bool:
    """True if hops may be made together: only over a partition that need not be read."""
    if len(tracks) > state.spec.workers.most_hops:
        return False
    if not worker.keeps(TRAINING, tracks[0].waiting[0].partition_key):
        return False
    # A first hop is made alone: it may start from weights, and nobody knows how long it takes.
    return sum(math.inf if one.seconds is None else one.seconds for one in tracks) <= SHARED_SECONDS


def critical_work(state: RunState) -> float:
    """Estimated seconds from which on the remaining work of a configuration is critical."""
    work = sum(track.work for track in state.active.values())
    return CRITICAL_SHARE * work / max(1, state.spec.workers.count)
