"""Rotation: one worker, whose tasks all segments do side by side, with a barrier between them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import ClassVar

from cerebro_db.core.spec import Hop
from cerebro_db.core.state import RunState
from cerebro_db.core.tasks import Scan, Score, Step, Task, WorkerView
from cerebro_db.decide import dispatch, retention, scoring
from cerebro_db.decide.strategies.hopper import Hopper


@dataclass(frozen=True, kw_only=True)
class Rotation(Hopper):
    """Hops of a hopper in steps, each of which is one statement over all segments.

    A step follows from the plan and from what of it is done, and from nothing else.
    """

    name: ClassVar = "rotation"
    drives_segments: ClassVar = True
    takes_joining_workers: ClassVar = False
    measures_speed: ClassVar = False

    def default_workers(
        self, partitions: int, configurations: int, cores: int, *, is_spread: bool
    ) -> int:
        """Number of sessions: 1, for which all segments work."""
        return 1

    def next(self, state: RunState, worker: WorkerView, now: float) -> Task | None:
        """Scans that are waited for, else a step, else any scans."""
        held = retention.held(state)
        scans = self._scans(state, worker, now, held)
        if not scans:
            hops = next_step(state, worker, held)
            if hops:
                return Step(hops)
            scans = self._scans(state, worker, now, None)
        return Score(scans, together=True) if scans else None

    def _scans(
        self, state: RunState, worker: WorkerView, now: float, awaited: Collection[int] | None
    ) -> tuple[Scan, ...]:
        return scoring.next_scans(state, worker, now, awaited, idle=True, side_by_side=True)


def next_step(state: RunState, worker: WorkerView, held: Collection[int]) -> tuple[Hop, ...]:
    """The hops of the next step."""
    alone = dispatch.next_alone(state, worker)
    if alone is not None:
        return (alone,)
    ready = dispatch.ready_tracks(state, None, held)
    work = {track.configuration.mst_key: track.work for track in ready}
    return step_of((track.waiting[0] for track in ready), work)


def step_of(ready: Iterable[Hop], work: Mapping[int, float]) -> tuple[Hop, ...]:
    """Returns the hops that are made together, in the order of their partitions.

    Each partition takes, of the hops that wait for it, that of the configuration with the
    longest remaining work. Partitions for which nothing waits take none. As the longest
    configurations are few, long hops mostly meet long ones, and short ones do not wait for them.

    Args:
        ready: the next hop of each configuration.
        work: for each mst_key, the estimated seconds of all that it still has to do.
    """
    chosen: dict[int, Hop] = {}
    for hop in sorted(ready, key=lambda hop: (-work[hop.mst_key], hop.mst_key)):
        chosen.setdefault(hop.partition_key, hop)
    return tuple(chosen[partition_key] for partition_key in sorted(chosen))
