"""What the caller is told while a run goes on: one line an epoch, and failures."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from cerebro_db.database.catalog import MetricRow
from cerebro_db.driver.fit_setup import RunSetup
from cerebro_db.driver.scoreboard import TRAINING, VALIDATION
from cerebro_db.planning.callbacks import Verdict


class EpochReport:
    """Collects what the line of an epoch says.

    Args:
        setup: of the run.
        notify: takes a line.
    """

    def __init__(self, setup: RunSetup, notify: Callable[[str], None]) -> None:
        self._goals = {c.mst_key: c.goal for c in setup.configurations}
        self._dataset = TRAINING if setup.validation is None else VALIDATION
        self._iterations = setup.request.num_iterations
        self._notify = notify
        self._rows = 0
        self._began = time.monotonic()
        self._scores: dict[int, list[MetricRow]] = {}

    def ready(self) -> None:
        """Workers begin to train now."""
        self._began = time.monotonic()

    def trained(self, rows: int) -> None:
        """A hop is done."""
        self._rows += rows

    def scored(self, rows: Sequence[MetricRow]) -> None:
        """Results are there."""
        for row in rows:
            if row.dataset == self._dataset:
                self._scores.setdefault(row.epoch, []).append(row)

    def ended(self, mst_key: int, status: str, error: str) -> None:
        """A configuration failed or was cancelled."""
        self._notify(f"configuration {mst_key} {status}: {error}")

    def decided(self, mst_key: int, before: Verdict, after: Verdict) -> None:
        """Callbacks have decided something."""
        if after.stopped_epoch is not None:
            best = f", best epoch {after.best_epoch}" if after.best_epoch else ""
            self._notify(
                f"configuration {mst_key} stopped early after epoch {after.stopped_epoch}{best}"
            )
        elif after.learning_rate != before.learning_rate:
            self._notify(f"configuration {mst_key}: learning rate {after.learning_rate:g}")

    def epoch(self, epoch: int, configurations: int, seconds: float) -> None:
        """All configurations finished an epoch, so many seconds after the run began."""
        spent = time.monotonic() - self._began
        speed = self._rows / spent if spent > 0 else 0.0
        self._notify(
            f"epoch {epoch} of {self._iterations}: {configurations} configurations, "
            f"{seconds:.1f} s, {speed:,.0f} rows/s{self._best(epoch)}"
        )

    def _best(self, epoch: int) -> str:
        rows = self._scores.pop(epoch, [])
        if not rows:
            return ""
        goals = {(self._goals[row.mst_key], *row.names[:1]) for row in rows}
        goal = goals.pop()[0] if len(goals) == 1 else "loss"  # what all of them have
        if goal == "loss":
            best = min(rows, key=lambda row: row.loss)
            return f", best {self._dataset} loss {best.loss:.4f} (mst_key {best.mst_key})"
        best = (max if goal == "max" else min)(rows, key=lambda row: row.metrics[0])
        return (
            f", best {self._dataset} {best.names[0]} {best.metrics[0]:.4f} (mst_key {best.mst_key})"
        )
