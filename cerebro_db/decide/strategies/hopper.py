"""Hopper: every worker takes the next hop or scan as soon as it is free."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import ClassVar

from cerebro_db.core.spec import Hop
from cerebro_db.core.state import RunState
from cerebro_db.core.strategies import Strategy
from cerebro_db.core.tasks import Score, Task, Train, WorkerView
from cerebro_db.decide import dispatch, plan, retention, scoring


@dataclass(frozen=True, kw_only=True)
class Hopper(Strategy):
    """Model hopper parallelism, without barriers. Other strategies change what they have to."""

    name: ClassVar = "hopper"
    takes_joining_workers: ClassVar = True
    takes_folds: ClassVar = True
    measures_speed: ClassVar = True

    def default_workers(
        self, partitions: int, configurations: int, cores: int, *, is_spread: bool
    ) -> int:
        """Workers that are always busy: for each partition one, as far as there are configurations and cores."""
        usable = min(partitions, configurations)
        return usable if is_spread else min(cores, usable)

    def most_workers(self, partitions: int, configurations: int, *, is_spread: bool) -> int:
        """Number of configurations; where partitions lie on segments, of partitions if these are fewer."""
        return min(partitions, configurations) if is_spread else configurations

    def plan(self, state: RunState) -> list[Hop]:
        """Hops of the next epoch of each configuration, and of some more where epochs are small."""
        return plan.plan_cohorts(state)

    def epoch(self, state: RunState, cohort: int, epoch: int) -> tuple[Hop, ...]:
        """Hops in an order in which workers seldom want the same configuration."""
        return plan.epoch_of_cohort(state, cohort, epoch)

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
