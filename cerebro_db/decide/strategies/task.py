"""Task parallelism: a worker takes a whole configuration, and reads all partitions for it."""

from __future__ import annotations

from collections.abc import Collection

from cerebro_db.core.state import RunState, Track
from cerebro_db.core.tasks import Task, Train, WorkerView
from cerebro_db.decide import dispatch
from cerebro_db.decide.strategies.hopper import Hopper


class WholeTask(Hopper):
    """The hops of the plan, those of a configuration by one worker.

    Who must wait for scores, or for a decision, leaves its worker to another configuration; whoever
    is free goes on with it then.
    """

    def _training(self, state: RunState, worker: WorkerView, held: Collection[int]) -> Task | None:
        """The next hop of the configuration that is the worker's, else of one that is nobody's."""
        alone = dispatch.next_alone(state, worker)
        if alone is not None:
            return Train((alone,))

        def priority(track: Track) -> tuple[bool, bool, float, int]:
            is_own, is_free = track.worker == worker.number, track.worker is None
            return not is_own, not is_free, -track.work, track.configuration.mst_key

        ready = sorted(dispatch.ready_tracks(state, worker, held), key=priority)
        return Train((ready[0].waiting[0],)) if ready else None
