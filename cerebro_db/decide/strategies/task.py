"""Task parallelism: a worker takes a whole configuration, and reads all partitions for it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import ClassVar

from cerebro_db.core.state import RunState, Track
from cerebro_db.core.tasks import Task, Train, WorkerView
from cerebro_db.decide import dispatch
from cerebro_db.decide.strategies.hopper import Hopper


@dataclass(frozen=True, kw_only=True)
class WholeTask(Hopper):
    """The hops of the plan, those of a configuration by one worker.

    While it waits for scores, or for a decision, its worker takes another one, and has both then.
    """

    name: ClassVar = "task"
    moves_rows: ClassVar = True
    takes_joining_workers: ClassVar = False

    def default_workers(
        self, partitions: int, configurations: int, cores: int, *, is_spread: bool
    ) -> int:
        """Number of configurations, as far as there are cores."""
        return configurations if is_spread else min(cores, configurations)

    def notice(self, partitions: int) -> str | None:
        """Description of the run for its caller."""
        return f"strategy {self.name}: a worker trains whole configurations"

    def _training(self, state: RunState, worker: WorkerView, held: Collection[int]) -> Task | None:
        """Train the next hop of the worker's configuration, or of one that no worker has."""
        alone = dispatch.next_alone(state, worker)
        if alone is not None:
            return Train((alone,))

        def priority(track: Track) -> tuple[bool, float, int]:
            return track.worker is None, -track.work, track.configuration.mst_key

        ready = [
            track
            for track in dispatch.ready_tracks(state, worker, held)
            if track.worker in (None, worker.number)
        ]
        return Train((min(ready, key=priority).waiting[0],)) if ready else None
