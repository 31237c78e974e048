"""What the caller is told while a run goes on: one line an epoch, and failures."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Sequence

from cerebro_db.database.catalog import MetricRow
from cerebro_db.driver.fit_setup import RunSetup
from cerebro_db.driver.goals import LOSS, badness
from cerebro_db.driver.scoreboard import TRAINING, VALIDATION
from cerebro_db.planning.callbacks import Verdict


class EpochReport:
    """Collects what the line of an epoch says.

    Args:
        setup: of the run.
        notify: takes a line.
    """

    def __init__(self, setup: RunSetup, notify: Callable[[str], None]) -> None:
        self._goal = next((c.goal for c in setup.configurations), LOSS)
        self._dataset = TRAINING if setup.validation is None else VALIDATION
        self._iterations = setup.request.num_iterations
        self._notify = notify
        self._rows = 0
        self._began = time.monotonic()
        self._scores: dict[int, list[MetricRow]] = {}
        # How many configurations have trained in each epoch, and the last one that was told of.
        self._trained: Counter[int] = Counter()
        self._told = 0

    def ready(self) -> None:
        """Workers begin to train now."""
        self._began = time.monotonic()

    def trained(self, rows: int) -> None:
        """A hop is done."""
        self._rows += rows

    def scored(self, rows: Sequence[MetricRow]) -> None:
        """Results are there."""
        for row in rows:
            if row.dataset == self._dataset and math.isfinite(row.loss):
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

    def finished(self, epoch: int) -> None:
        """A configuration has visited all partitions."""
        self._trained[epoch] += 1

    def known(self, is_complete: Callable[[int], bool]) -> None:
        """An earlier driver has told of the epochs that are complete."""
        while self._is_next(is_complete):
            self._told += 1

    def epochs(self, is_complete: Callable[[int], bool], seconds: float) -> None:
        """Tell of each epoch that was not told of yet and that nobody is to finish any more.

        Args:
            is_complete: whether all configurations that go on have finished an epoch.
            seconds: since the run began.
        """
        while self._is_next(is_complete):
            self._told += 1
            spent = time.monotonic() - self._began
            speed = self._rows / spent if spent > 0 else 0.0
            self._notify(
                f"epoch {self._told} of {self._iterations}: {self._trained[self._told]} "
                f"configurations, {seconds:.1f} s, {speed:,.0f} rows/s{self._best(self._told)}"
            )

    def _is_next(self, is_complete: Callable[[int], bool]) -> bool:
        return self._trained[self._told + 1] > 0 and is_complete(self._told + 1)

    def _best(self, epoch: int) -> str:
        rows = self._scores.pop(epoch, [])
        if not rows:
            return ""
        best = min(
            rows, key=lambda row: badness(self._goal, next(iter(row.metrics), None), row.loss)
        )
        name, value = (LOSS, best.loss) if self._goal == LOSS else (best.names[0], best.metrics[0])
        return f", best {self._dataset} {name} {value:.4f} (mst_key {best.mst_key})"
