"""Grid, random, TPE, GP, CMA-ES: every trial is trained for all epochs, unless it is stopped early."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cerebro_db.configs.grids.search_methods import GRID
from cerebro_db.core.search import UNLIMITED, SearchSpec
from cerebro_db.core.statuses import WAITING
from cerebro_db.decide.search.trials import (
    Affords,
    Continue,
    End,
    Method,
    Start,
    Trial,
    affords_all,
)


class Full(Method):
    """Trials of equal length; the sampler alone makes the difference."""

    def __init__(self, spec: SearchSpec) -> None:
        super().__init__(spec)
        self._left: int = spec.params.get("num_configs", UNLIMITED)
        # Trials that were wanted, and for which there was no configuration.
        self._missed = 0
        self._reason = (
            "the next of the grid" if spec.method == GRID else f"proposed by {spec.method}"
        )
        self.full = spec.params["num_iterations"]
        # Keys of trials that may have fewer epochs than there are; None where that is not known yet.
        self._short: list[int] | None = []

    def total(self, configurations: float) -> float:
        """Epochs of all trials together."""
        return min(self._left, configurations) * self.full

    def trials(self) -> float:
        """Number of trials that it starts."""
        return self._left

    def next(
        self, trials: Mapping[int, Trial], affords: Affords = affords_all
    ) -> Start | Continue | None:
        """A trial that has fewer epochs than there are by now, or a new one."""
        for key in self._shortened(trials):
            found = Continue(key, self.full, {}, f"goes on to epoch {self.full}")
            if trials[key].status == WAITING and affords(found):
                return found
        start = Start(self.full, {}, self._reason)
        return start if self._left > 0 and affords(start) else None

    def _shortened(self, trials: Mapping[int, Trial]) -> list[int]:
        """Keys of trials that go on, or may, and have fewer epochs than there are: after an extension only."""
        found = trials if self._short is None else self._short
        self._short = [key for key in found if self._is_short(trials[key])]
        return self._short

    def _is_short(self, trial: Trial) -> bool:
        return trial.is_open and trial.budget < self.full and not trial.is_adopted

    def started(self, trial: Trial) -> None:
        """One less is left."""
        self._left -= 1

    def exhausted(self, trials: Mapping[int, Trial]) -> list[End]:
        """None is left."""
        self._missed, self._left = self._missed + self._left, 0
        return []

    def reopen(self) -> None:
        """Those that are missed are left."""
        self._left, self._missed = self._left + self._missed, 0

    def may_be_last(self, trial: Trial) -> bool:
        """False for what somebody else has proposed, with epochs of its own."""
        return super().may_be_last(trial) and not trial.is_adopted

    def extend(self, params: Mapping[str, Any]) -> None:
        """More trials, or more epochs of each."""
        self._left += params.get("num_configs", 0)
        self.full = max(self.full, params.get("num_iterations", 0))
        self._short = None
