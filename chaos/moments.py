"""The moment of a kill: in which phase of a run, and how far in it."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass

SETTING_UP, IMPORTING, TRAINING, ENDING = "setting up", "importing", "training", "ending"
# How often a kill is meant for each phase.
PHASES: Mapping[str, int] = {SETTING_UP: 3, IMPORTING: 4, TRAINING: 9, ENDING: 4}
# What may be hit; where nothing is under way any more the results must stay as they are.
OVER = "over"
# A hop takes some milliseconds, and so do the scores in between.
_SPREAD_OF_HOPS = 0.05


@dataclass(frozen=True)
class Moment:
    """Moment to kill at.

    Attributes:
        phase: that has to begin before.
        fraction: of the phase that has to pass then; for training, of the hops.
        spread: in milliseconds, for training, after the hop.
    """

    phase: str
    fraction: float
    spread: float

    def __str__(self) -> str:
        more = f" + {self.spread:.1f} ms" if self.phase == TRAINING else ""
        return f"{self.phase}, {self.fraction:.1%}{more}"

    def hops(self, done: int, planned: int) -> int:
        """Number of hops that must be committed before."""
        if self.phase == ENDING:
            return planned
        return done + int(self.fraction * (planned - done)) if self.phase == TRAINING else 0

    def delay(self, seconds: Mapping[str, float]) -> float:
        """Seconds to wait after the phase, or the hop, was seen."""
        if self.phase == TRAINING:
            return self.spread / 1000
        return self.fraction * seconds[self.phase]


def draw(generator: random.Random, resumed: bool) -> Moment:
    """A random moment; each setup is made once."""
    weights = {name: weight for name, weight in PHASES.items() if not resumed or name != SETTING_UP}
    (phase,) = generator.choices(list(weights), list(weights.values()))
    return Moment(phase, generator.random(), generator.random() * _SPREAD_OF_HOPS * 1000)
