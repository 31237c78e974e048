"""Scoring: which configurations are scored when, and together.

Where a worker can keep all partitions in memory, a configuration is scored soon after it finished its
epoch, as scanning again costs little: others that finish it within a moment are scored in the same
scan. Otherwise a group waits for all configurations, so that each partition is read once an epoch.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from cerebro_db.core.state import Pending, RunState
from cerebro_db.core.tasks import Scan, ScoringGroup, WorkerView


def next_scans(
    state: RunState,
    worker: WorkerView,
    now: float,
    awaited: Collection[int] | None,
    *,
    idle: bool,
    side_by_side: bool = False,
) -> tuple[Scan, ...]:
    """The next scans of a worker: a partition, if possible one that it has in memory.

    Args:
        state: of the run.
        worker: that is free.
        now: on the clock.
        awaited: configurations whose scores are waited for; None for all, as nobody has anything
            else to do.
        idle: whether the worker has nothing else to do.
        side_by_side: whether it scans all partitions of a data set at once.
    """
    serves = state.spec.workers.serves
    for group in _groups(state, now, awaited, idle):
        left = [pair for pair in group.waiting if side_by_side or serves(worker.number, pair[1])]
        if left and side_by_side:
            return tuple(Scan(group, name, key) for name, key in left if name == left[0][0])
        if left:
            kept = (pair for pair in left if worker.keeps(state.spec.stored(pair[0]), pair[1]))
            return (Scan(group, *next(kept, left[0])),)
    return ()


def _groups(
    state: RunState, now: float, awaited: Collection[int] | None, idle: bool
) -> Iterator[ScoringGroup]:
    """Groups that are being scanned, and those that are formed when a worker takes a scan of them."""
    yield from state.groups
    for epoch, pending in sorted(state.pending.items()):
        waits = state.spec.scans_wait
        if state.all_there(epoch) or (not waits and _is_due(pending, now, awaited, idle)):
            pairs = [
                (name, key) for name in state.spec.scored for key in state.spec.partitions[name]
            ]
            yield ScoringGroup(epoch, tuple(sorted(pending.mst_keys)), pairs, len(pairs))


def _is_due(pending: Pending, now: float, awaited: Collection[int] | None, idle: bool) -> bool:
    """True if a group is formed although some configurations are not there yet."""
    wanted = awaited is None or not pending.mst_keys.isdisjoint(awaited)
    return wanted or now >= (pending.due if idle else pending.late)
