"""Dispatch: which planned hops a free worker makes next."""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Sequence

from cerebro_db.core.spec import TRAINING, Hop, Program
from cerebro_db.core.state import RunState, Track
from cerebro_db.core.tasks import WorkerView

# A configuration is critical a little before it alone decides when the run ends.
CRITICAL_SHARE = 0.9
# A hop with a program that its worker has goes before one that is so much more urgent, at most: by
# virtual seconds of a search, about what it takes to compile one, or by epochs of any other run.
PROGRAM_SECONDS, PROGRAM_EPOCHS = 1.0, 1
# Hops that take no longer together share a statement, whose own cost is much in comparison. A
# longer hop of another configuration would wait for them, and it may be what decides the end.
SHARED_SECONDS = 0.2


def next_hops(state: RunState, worker: WorkerView, held: Collection[int]) -> tuple[Hop, ...]:
    """The hops of one partition that a free worker makes now; none where it has to wait.

    Hops of a configuration are made one at a time and in the order of the plan. Nothing else waits:
    a free worker takes the ready hop that comes first by

    1. being of a configuration on the critical path: its remaining work is at least 0.9 of what
       every worker would have to do if all remaining work were spread evenly,
    2. the lower epoch; in a search, the earlier next result in its virtual time, as decisions wait
       for results in that order,
    3. the longer remaining work of the configuration,
    4. a partition that this worker has in memory,
    5. the lower mst_key.

    A program is compiled by each worker that makes a hop with it. So one that lacks the program of the
    first takes the next hop, about as urgent, whose program it has, or, where there is none, nobody has.

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
        hop, work = track.waiting[0], _work(state, track)
        away = not worker.keeps(TRAINING, hop.partition_key)
        when = _virtual_due(track) if state.spec.is_open else hop.epoch
        return work < critical, when, -work, away, hop.mst_key

    ready = sorted((priority(one), one) for one in ready_tracks(state, worker, held))
    if not ready:
        return ()
    first = _cheapest(state, worker, ready)
    programs = {first.configuration.program} | state.programs.get(worker.number, set())
    taken = [first]
    # What a hop of several leaves goes to one partition each, and not to those of a round.
    is_shared = state.spec.strategy.largest_group == 1 and not worker.only_hops
    if is_shared and state.longest_hop <= SHARED_SECONDS:
        share = math.ceil(len(state.going_on) / state.spec.workers.count)
        for _, track in ready:
            same = track.waiting[0].partition_key == first.waiting[0].partition_key
            is_compiled = track is not first and track.configuration.program in programs
            if same and is_compiled and len(taken) < share and _fit(state, worker, [*taken, track]):
                taken.append(track)
    return tuple(track.waiting[0] for track in taken)


_Priority = tuple[bool, float, float, bool, int]


def _cheapest(
    state: RunState, worker: WorkerView, ready: Sequence[tuple[_Priority, Track]]
) -> Track:
    """The first by priority, or one about as urgent for which less is to be compiled.

    Args:
        ready: in the order of their priority.
    """
    (is_late, when, *_), first = ready[0]
    own = state.programs.get(worker.number, set())
    # Where partitions belong to workers, each makes hops of all configurations.
    is_bound = state.spec.workers.bound and not worker.only_hops
    if first.configuration.program in own or is_bound:
        return first
    latest = when + (PROGRAM_SECONDS if state.spec.is_open else PROGRAM_EPOCHS)
    close = list(itertools.takewhile(lambda one: one[0][:2] <= (is_late, latest), ready))
    anywhere = set[Program]().union(*state.programs.values())

    def lacking(one: tuple[_Priority, Track]) -> int:
        program = one[1].configuration.program
        return 0 if program in own else 1 if program not in anywhere else 2

    return min(close, key=lacking)[1]


def _virtual_due(track: Track) -> float:
    """Virtual seconds at which the next result of a trial comes."""
    began, epoch = track.since
    last = track.budget if track.last_allowed is None else track.last_allowed
    return began + (last - epoch) * track.configuration.hop_seconds * track.pace


def _work(state: RunState, track: Track) -> float:
    """Estimated seconds that a configuration still takes: of a trial, to its budget."""
    if not state.spec.is_open:
        return track.work
    hops = track.budget * state.spec.hops_an_epoch - track.done
    return track.configuration.hop_seconds * hops


def next_alone(state: RunState, worker: WorkerView) -> Hop | None:
    """A hop that is made alone, since its statement failed with others."""
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
    critical = {key for key, track in state.active.items() if _work(state, track) >= least}
    if 2 * len(critical) > state.spec.workers.count or not critical.isdisjoint(held):
        return False
    return any(_work(state, track) >= least for track in ready_tracks(state, worker, held))


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
    work = sum(_work(state, track) for track in state.active.values())
    return CRITICAL_SHARE * work / max(1, state.spec.workers.count)
