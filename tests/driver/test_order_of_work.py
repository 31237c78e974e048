"""What comes first: workers before what takes long to import, training before scoring or after."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Collection, Sequence
from typing import Any

import pytest

from cerebro_db.driver.handing import Handing
from cerebro_db.driver.run import Run
from cerebro_db.driver.scoreboard import Scan
from cerebro_db.driver.workers import Worker
from cerebro_db.planning.dispatch import Dispatcher
from cerebro_db.planning.orders import Visit


class _Order(Run):
    """A run of which all is left out but the choice."""

    def __init__(self, dispatcher: Dispatcher, held: Collection[int], *, due: bool = True) -> None:
        self.chosen: list[str] = []
        self._due = due
        self._dispatcher, self._alive = dispatcher, dict.fromkeys((1, 2))  # type: ignore[assignment]
        self._workers, self._waiting = [], held
        self._handing = Handing(dispatcher, lambda *_: True, 1, dispatcher.finished)

    def _held(self) -> list[int]:
        return list(self._waiting)

    def _next_scan(self, worker: Worker, awaited: Collection[int] | None, *, idle: bool) -> Any:
        return object() if self._due or idle else None

    def _send_scan(self, worker: Worker, scan: Scan) -> None:
        self.chosen.append("scan")

    def _send_visits(self, worker: Worker, visits: Sequence[Visit]) -> None:
        self.chosen.append(f"visit of {visits[0].mst_key}")


@pytest.mark.parametrize(
    ("costs", "held", "chosen"),
    [
        ((1.0, 50.0), [], "visit of 2"),  # it decides when the run ends
        ((1.0, 50.0), [2], "scan"),  # it waits for one
        ((50.0, 50.0), [], "scan"),  # both do, and nobody would have time to score
    ],
)
def test_a_visit_that_decides_the_end_comes_before_a_scan(
    costs: tuple[float, float], held: list[int], chosen: str
) -> None:
    dispatcher = Dispatcher(2, dict(zip((1, 2), costs, strict=True)))
    dispatcher.add_visits(Visit(key, 1, place, place) for key in (1, 2) for place in (0, 1))
    order = _Order(dispatcher, held)
    order._assign_scan_or_visit(Worker(0, session=None))  # type: ignore[arg-type]
    assert order.chosen == [chosen]


@pytest.mark.parametrize(("number", "chosen"), [(0, "visit of 1"), (1, "scan")])
def test_scores_wait_for_others_as_long_as_a_worker_can_train(number: int, chosen: str) -> None:
    dispatcher = Dispatcher(2, {1: 1.0, 2: 1.0}, serves=lambda worker, key: worker == key)
    dispatcher.add_visits([Visit(1, 1, 0, 0)])
    order = _Order(dispatcher, [], due=False)
    order._assign_scan_or_visit(Worker(number, session=None))  # type: ignore[arg-type]
    assert order.chosen == [chosen]


def test_workers_begin_before_numpy_is_imported() -> None:
    """What a driver does before them makes every run longer."""
    code = "import sys, cerebro_db.server.fitting; sys.exit('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
