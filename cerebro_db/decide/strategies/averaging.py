"""Averaging: every partition trains a replica, and the states that these leave become one."""

from __future__ import annotations

from collections.abc import Collection

from cerebro_db.core.spec import TRAINING, Hop
from cerebro_db.core.state import RunState
from cerebro_db.core.tasks import Task, Train, WorkerView
from cerebro_db.decide import dispatch
from cerebro_db.decide.strategies.hopper import Hopper


class Averaging(Hopper):
    """Local SGD: the hops of a round begin with the same state, in any order, by any workers."""

    def next(self, state: RunState, worker: WorkerView, now: float) -> Task | None:
        """A round that waits to be averaged, else what a hopper does."""
        rounds = [] if worker.only_hops else state.to_average
        return rounds[0] if rounds else super().next(state, worker, now)

    def _training(self, state: RunState, worker: WorkerView, held: Collection[int]) -> Task | None:
        """One hop: of a critical configuration, of the first round, of the most work left."""
        alone = dispatch.next_alone(state, worker)
        if alone is not None:
            return Train((alone,))
        critical, serves = dispatch.critical_work(state), state.spec.workers.serves

        def priority(hop: Hop) -> tuple[bool, int, int, float, bool, int, int]:
            track = state.tracks[hop.mst_key]
            away = not worker.keeps(TRAINING, hop.partition_key)
            is_late = track.work < critical
            begun = state.spec.base(hop)
            return is_late, hop.epoch, begun, -track.work, away, hop.mst_key, hop.position

        ready = [
            hop
            for mst_key, track in state.tracks.items()
            if mst_key not in held
            for hop in state.ready(track)
            if serves(worker.number, hop.partition_key)
        ]
        return Train((min(ready, key=priority),)) if ready else None
