"""Averaging: every partition trains a replica, and the states that these leave become one."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import ClassVar

from cerebro_db.configs.arguments import choice
from cerebro_db.core.spec import TRAINING, Configuration, Hop
from cerebro_db.core.state import RunState
from cerebro_db.core.strategies import parameter
from cerebro_db.core.tasks import Task, Train, WorkerView
from cerebro_db.decide import dispatch
from cerebro_db.decide.strategies.rounds import Rounds, scales_loss
from cerebro_db.errors import InvalidArgument

_AVERAGE, _RESET = "average", "reset"


@dataclass(frozen=True, kw_only=True)
class Averaging(Rounds):
    """Local SGD: the hops of a round begin with the same state, in any order, by any workers."""

    name: ClassVar = "averaging"
    example: ClassVar = "rounds=4, optimizer=reset"
    averages: ClassVar = True
    takes_joining_workers: ClassVar = True
    optimizer: str = parameter(choice("optimizer", _AVERAGE, _AVERAGE, _RESET))

    @property
    def resets(self) -> bool:
        """True if optimizers begin each round anew."""
        return self.optimizer == _RESET

    def check_configurations(
        self, configurations: Iterable[Configuration], table: str, partitions: int
    ) -> None:
        """Refuse optimizers that hold what has no mean: the scale of a loss is a power of 2."""
        for one in configurations:
            if scales_loss(one) and not self.resets:
                raise InvalidArgument(
                    f"configuration {one.mst_key}: got an optimizer that scales its loss, as the model "
                    f"computes in float16; allowed with strategy := {self.name!r}: optimizers whose numbers "
                    "can be averaged",
                    hint="strategy_params := 'optimizer=reset' has it begin each round anew",
                )

    def notice(self, partitions: int) -> str | None:
        """Description of the run for its caller."""
        return f"strategy {self.name}: {partitions} replicas of each configuration, averaged {self.how_often}"

    def next(self, state: RunState, worker: WorkerView, now: float) -> Task | None:
        """A round that waits to be averaged, else what a hopper does."""
        rounds = [] if worker.only_hops else state.to_average
        return rounds[0] if rounds else super().next(state, worker, now)

    def _training(self, state: RunState, worker: WorkerView, held: Collection[int]) -> Task | None:
        """Train one hop: of a critical configuration, of the first round, of the most work left."""
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
