"""Auto: hops of a hopper, and rounds that groups of workers make together, as the plan has chosen."""

from __future__ import annotations

from collections.abc import Collection

from cerebro_db.core.state import RunState
from cerebro_db.core.tasks import Task, Train, WorkerView
from cerebro_db.decide import dispatch
from cerebro_db.decide.strategies.allreduce import AllReduce, begun, round_priority, whole_round


class Auto(AllReduce):
    """The sizes of groups are those of the planned hops: one is a hop like any other.

    Where a round comes first and too few workers are free, those that are wait for the others, which
    have one task each at most; else single hops could keep it from ever beginning.
    """

    def _training(self, state: RunState, worker: WorkerView, held: Collection[int]) -> Task | None:
        """Single hops, or the first share of a round, whatever comes first."""
        again = dispatch.next_alone(state, worker)
        if again is not None:
            return Train((again,))
        critical = dispatch.critical_work(state)
        rounds = [
            (round_priority(track, critical), hops)
            for mst_key, track in state.active.items()
            if mst_key not in held and (hops := whole_round(state, track))
        ]
        alone = dispatch.next_hops(state, worker, held)
        if not rounds:
            return Train(alone) if alone else None
        first, hops = min(rounds)
        if alone and round_priority(state.tracks[alone[0].mst_key], critical) < first:
            return Train(alone)
        return begun(state, worker, hops)
