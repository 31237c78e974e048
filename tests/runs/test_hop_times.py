"""Times of hops that a driver writes down for its workers."""

from __future__ import annotations

import json
import random
from datetime import UTC, datetime
from typing import Any

from cerebro_db.core.spec import Hop
from cerebro_db.core.tasks import HopResult
from cerebro_db.protocol import HopReport
from cerebro_db.runs.catalog import RunCatalog

BEGAN = datetime(2026, 1, 1, tzinfo=UTC)


class Catalog:
    """Keeps the rows that are stored."""

    rows: list[dict[str, Any]]

    def now(self) -> datetime:
        """The server's time."""
        return BEGAN

    def call(self, function: str, run_id: int, rows: str) -> None:
        """Take the rows, which are JSON."""
        self.rows = json.loads(rows)


def test_hops_of_one_statement_never_overlap() -> None:
    """One after another, each of a few microseconds and a fraction."""
    catalog, numbers = Catalog(), random.Random(3)
    run = RunCatalog(catalog, 1)  # type: ignore[arg-type]
    sent = 1000.0
    for key in range(500):
        seconds = numbers.random() / 100
        report = HopReport(
            worker=0, pid=7, partition_key=0, rows=10, loss=0.5, read_seconds=0.0, train_seconds=seconds,
            compiled=False, cached=True, memory_mb=500,
        )  # fmt: skip
        run.hop_done(HopResult(Hop(key, 1, 0, 0), report, 0.0, sent, seconds, 0.0))
        sent += seconds
    run.flush()
    started, finished = (
        [datetime.fromisoformat(row[name]) for row in catalog.rows]
        for name in ("started", "finished")
    )
    assert all(a <= b for a, b in zip(started, finished, strict=True))
    assert finished[:-1] == started[1:]
