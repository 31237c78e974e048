"""What comes first: workers before what takes long to import, training before scoring or after."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Collection, Sequence
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock, call

import pytest

from cerebro_db.database.dialects.postgresql_training import HopMade
from cerebro_db.driver.handing import Handing
from cerebro_db.driver.jobs import Hops
from cerebro_db.driver.run import Run
from cerebro_db.driver.scoreboard import Scan
from cerebro_db.driver.workers import Worker
from cerebro_db.planning.dispatch import Dispatcher
from cerebro_db.planning.orders import Visit


class _Order(Run):
    """A run of which all is left out but the choice."""

    def __init__(self, dispatcher: Dispatcher, held: Collection[int], *, due: bool = True) -> None:
        self.chosen: list[str] = []
        self.asked: list[tuple[list[int] | None, bool]] = []
        self._due = due
        self._dispatcher, self._alive = dispatcher, dict.fromkeys((1, 2))  # type: ignore[assignment]
        self._workers, self._waiting = [], held
        self._handing = Handing(dispatcher, lambda *_: True, 1, dispatcher.finished)

    def _held(self) -> list[int]:
        return list(self._waiting)

    def _next_scan(self, worker: Worker, awaited: Collection[int] | None, *, idle: bool) -> Any:
        self.asked.append((None if awaited is None else list(awaited), idle))
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


@pytest.mark.parametrize(("job", "awaited"), [(Hops(()), [2]), (None, None)])
def test_scores_wait_for_nobody_where_nobody_trains(
    job: Hops | None, awaited: list[int] | None
) -> None:
    order = _Order(Dispatcher(2, {1: 1.0, 2: 1.0}), [2], due=False)
    order._workers = [Worker(1, session=None, job=job)]  # type: ignore[arg-type]
    order._assign_scan_or_visit(Worker(0, session=None))  # type: ignore[arg-type]
    assert order.asked == [([2], False), (awaited, True)]


def test_scores_wait_no_longer_than_the_longest_hop_that_may_come() -> None:
    """A worker that does not score takes a hop of whomever."""
    dispatcher = Dispatcher(2, {1: 1.0, 2: 1.0, 3: 1.0})
    dispatcher.add_visits(Visit(key, 1, place, place) for key in (1, 2, 3) for place in (0, 1))
    handing = Handing(dispatcher, lambda *_: True, 1, dispatcher.finished)
    handing.took(1, 1.0)
    handing.took(2, 60.0)
    assert handing.longest() == math.inf  # nobody knows that of 3
    handing.took(3, 2.0)
    assert handing.longest() == 60.0
    dispatcher.drop(2)
    assert handing.longest() == 2.0


def test_the_board_learns_what_may_come_after_an_epoch() -> None:
    run: Any = object.__new__(Run)
    run._partitions, run._alive = [0, 1], {1: None, 2: None}
    run._dispatcher = Dispatcher(2, {1: 1.0, 2: 1.0})
    run._dispatcher.add_visits(Visit(key, 1, place, place) for key in (1, 2) for place in (0, 1))
    run._handing = Handing(run._dispatcher, lambda *_: True, 1, run._dispatcher.finished)
    run._handing.took(2, 4.0)
    run._report, run._store, run._retention, run._board = (MagicMock() for _ in range(4))
    run._orders = SimpleNamespace(version=lambda visit: visit.position)
    run._seconds_before = run._began = 0.0
    made = HopMade(rows=10, kept=(), size=100)
    for _ in range(2):
        visit = run._dispatcher.next_visit(0, held=[2])
        run._visited(visit, made, 1.0, None)
    assert run._board.finished.mock_calls == [call(1, 1, 4.0)]


def test_a_driver_is_imported_without_numpy() -> None:
    """What it does before its workers begin makes every run longer."""
    code = "import sys, cerebro_db.server.fitting; sys.exit('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
