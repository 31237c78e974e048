"""Hopper: every worker takes the next hop or scan as soon as it is free."""

from __future__ import annotations

from collections.abc import Collection

from cerebro_db.core.state import RunState
from cerebro_db.core.tasks import Score, Task, Train, WorkerView
from cerebro_db.decide import dispatch, retention, scoring


class Hopper:
    """Model hopper parallelism, without barriers."""

    def next(self, state: RunState, worker: WorkerView, now: float) -> Task | None:
        """A scan where one is due, else hops, else any scan."""
        held = retention.held(state)
        if worker.only_hops:
            return self._training(state, worker, held)
        # What decides when the run ends comes before what somebody who is free can do meanwhile.
        if not dispatch.is_pressing(state, worker, held):
            scans = scoring.next_scans(state, worker, now, held, idle=False)
            if scans:
                return Score(scans)
        training = self._training(state, worker, held)
        if training is not None:
            return training
        awaited = held if state.is_training else None
        scans = scoring.next_scans(state, worker, now, awaited, idle=True)
        return Score(scans) if scans else None

    def _training(self, state: RunState, worker: WorkerView, held: Collection[int]) -> Task | None:
        """Hops that are ready; None where the worker has to wait."""
        hops = dispatch.next_hops(state, worker, held)
        return Train(hops) if hops else None
