"""Rounds: an epoch of a configuration has rounds of hops, which begin with the same state and leave one."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import ClassVar

from cerebro_db.configs.arguments import whole
from cerebro_db.core.spec import TRAINING, Configuration, Hop
from cerebro_db.core.state import RunState
from cerebro_db.core.strategies import parameter
from cerebro_db.decide.plan import plan_rounds
from cerebro_db.decide.strategies.hopper import Hopper

# Types of numbers with which Keras scales a loss, as a model's JSON has them.
_SCALING = re.compile(r'"(mixed_)?float16"')


@dataclass(frozen=True, kw_only=True)
class Rounds(Hopper):
    """A replica of a configuration for each partition."""

    has_rounds: ClassVar = True
    takes_joining_workers: ClassVar = False
    takes_folds: ClassVar = False
    measures_speed: ClassVar = False
    rounds: int = parameter(whole("rounds", 1, 1, high=10_000))

    @property
    def how_often(self) -> str:
        """How often a state is left, for people."""
        return "once an epoch" if self.rounds == 1 else f"{self.rounds} times an epoch"

    def default_workers(
        self, partitions: int, configurations: int, cores: int, *, is_spread: bool
    ) -> int:
        """Number of partitions, as far as there are cores."""
        return partitions if is_spread else min(cores, partitions)

    def most_workers(self, partitions: int, configurations: int, *, is_spread: bool) -> int:
        """Number of replicas; where partitions lie on segments, of partitions."""
        return partitions if is_spread else partitions * configurations

    def epoch(self, state: RunState, cohort: int, epoch: int) -> tuple[Hop, ...]:
        """The partitions in the same order in each round."""
        partitions = state.spec.partitions[TRAINING]
        size = len(partitions) if self.is_side_by_side else 1
        return plan_rounds(state.cohorts[cohort], partitions, self.rounds, epoch, size)


def scales_loss(configuration: Configuration) -> bool:
    """True if the optimizer of a configuration scales its loss, as the model computes in float16."""
    policy = configuration.compile_params.dtype_policy
    text = configuration.architecture.text if policy is None else f'"{policy}"'
    return _SCALING.search(text) is not None
