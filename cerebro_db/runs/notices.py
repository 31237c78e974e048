"""Messages to the caller while a run goes on: one line an epoch, and failures."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from cerebro_db.core.events import Verdict
from cerebro_db.core.ports import Clock
from cerebro_db.core.spec import TRAINING, VALIDATION
from cerebro_db.core.state import RunState
from cerebro_db.core.tasks import Measures
from cerebro_db.scoring.prediction_models import LOSS, badness


class RunNotices:
    """Collects what the line of an epoch says.

    Args:
        state: of the run; of epochs that are complete now there are no notices any more.
        notify: takes a line.
        clock: seconds that only grow.
        seconds_before: that earlier drivers spent.
    """

    def __init__(
        self,
        state: RunState,
        notify: Callable[[str], None],
        clock: Clock,
        seconds_before: float = 0.0,
    ) -> None:
        self._state, self.notify, self._clock = state, notify, clock
        self._dataset = VALIDATION if VALIDATION in state.spec.scored else TRAINING
        self._seconds_before, self._began = seconds_before, clock()
        self._rows = self._reported = 0
        self._scores: dict[int, list[Measures]] = {}
        while self._is_next():
            self._reported += 1

    @property
    def _goal(self) -> str:
        goals = (track.configuration.goal for track in self._state.tracks.values())
        return next(goals, LOSS)

    @property
    def elapsed(self) -> float:
        """Seconds that the run has taken so far."""
        return self._seconds_before + self._clock() - self._began

    def begins(self) -> None:
        """Workers begin to train now."""
        self._began = self._clock()

    def waits(self) -> None:
        """The run waits for configurations of others."""

    def trained(self, rows: int) -> None:
        """A hop is done."""
        self._rows += rows

    def scored(self, rows: Sequence[Measures]) -> None:
        """Results are there."""
        for row in rows:
            if row.dataset == self._dataset and math.isfinite(row.loss):
                self._scores.setdefault(row.epoch, []).append(row)

    def ended(self, mst_key: int, status: str, error: str) -> None:
        """A configuration failed or was cancelled."""
        self.notify(f"configuration {mst_key} {status}: {error}")

    def judged(self, mst_key: int, before: Verdict, after: Verdict) -> None:
        """Callbacks have decided something."""
        if after.stopped_epoch is not None:
            best = f", best epoch {after.best_epoch}" if after.best_epoch else ""
            self.notify(
                f"configuration {mst_key} stopped early after epoch {after.stopped_epoch}{best}"
            )
        elif after.learning_rate != before.learning_rate:
            self.notify(f"configuration {mst_key}: learning rate {after.learning_rate:g}")

    def epochs(self) -> None:
        """Report each complete epoch that has not been reported."""
        while self._is_next():
            self._reported += 1
            spent = self._clock() - self._began
            speed = self._rows / spent if spent > 0 else 0.0
            # Later ones of a search may come to the same epoch.
            so_far = " so far" if self._state.spec.is_open else ""
            self.notify(
                f"epoch {self._reported} of {self._last}: {self._state.trained[self._reported]} "
                f"configurations{so_far}, {self.elapsed:.1f} s, {speed:,.0f} rows/s{self._best(self._reported)}"
            )

    @property
    def _last(self) -> int:
        return max([self._state.spec.epochs, *(one.budget for one in self._state.tracks.values())])

    def _is_next(self) -> bool:
        following = self._reported + 1
        return self._state.trained[following] > 0 and self._state.is_epoch_complete(following)

    def _best(self, epoch: int) -> str:
        rows = self._scores.pop(epoch, [])
        if not rows:
            return ""
        best = min(
            rows, key=lambda row: badness(self._goal, next(iter(row.metrics), None), row.loss)
        )
        name, value = (LOSS, best.loss) if self._goal == LOSS else (best.names[0], best.metrics[0])
        return f", best {self._dataset} {name} {value:.4f} (mst_key {best.mst_key})"
