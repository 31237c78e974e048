"""How errors and requests decide on what becomes of a run."""

from __future__ import annotations

from typing import Any, cast

import pytest

from cerebro_db.core.decisions import Cancel, Request
from cerebro_db.errors import (
    InvalidData,
    InvalidState,
    RunCancelled,
    RunInterrupted,
    UndefinedRun,
    WrongRunStatus,
    is_infrastructure_failure,
)
from cerebro_db.postgres.catalog.runs import Catalog, Driving
from cerebro_db.postgres.sessions.errors import StatementFailed
from cerebro_db.runs.guards import check_still_driven, check_unfinished, status_after
from cerebro_db.runs.requests import Requests, Stopped

Row = tuple[int, str, int | None, str, str]


class _Catalog:
    """Requests in memory, in the order in which the catalog gives them."""

    def __init__(self, *requests: Row) -> None:
        self.there = list(requests)

    def requests(self, run_id: int) -> list[Row]:
        assert run_id == 7
        return list(self.there)

    def forget_requests(self, run_id: int, request_id: int) -> None:
        assert run_id == 7
        self.there = [request for request in self.there if request[0] != request_id]


def test_a_configuration_is_cancelled_before_the_run_is_stopped() -> None:
    catalog = _Catalog((1, "cancel", 5, "ann", "{}"), (2, "pause", None, "bob", "{}"))
    requests = Requests(cast(Catalog, catalog), 7)
    assert requests.look() == [Request(1, 5, "ann", Cancel())]
    requests.done(1)
    with pytest.raises(Stopped, match="paused by bob") as stopped:
        requests.look()
    assert stopped.value.status == "paused"
    assert catalog.there == []


class _SlowCatalog(_Catalog):
    """Each look takes a while, or fails."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.seconds, self.now, self.looks, self.fails = seconds, 100.0, 0, False

    def requests(self, run_id: int) -> list[Row]:
        self.looks += 1
        self.now += self.seconds
        if self.fails:
            raise InvalidState("x")
        return super().requests(run_id)


@pytest.mark.parametrize(
    ("seconds", "pause"), [(0.0, 0.25), (0.001, 0.25), (0.004, 0.8), (0.1, 1.0)]
)
def test_looks_are_rarer_where_they_take_longer(
    monkeypatch: pytest.MonkeyPatch, seconds: float, pause: float
) -> None:
    catalog = _SlowCatalog(seconds)
    monkeypatch.setattr("cerebro_db.runs.requests.time.monotonic", lambda: catalog.now)
    requests = Requests(cast(Catalog, catalog), 7)
    requests.look()
    catalog.now += pause - 0.01
    requests.look()
    assert catalog.looks == 1
    catalog.now += 0.02
    requests.look()
    assert catalog.looks == 2


def test_a_look_that_fails_is_not_the_last_one(monkeypatch: pytest.MonkeyPatch) -> None:
    catalog = _SlowCatalog(0.0)
    monkeypatch.setattr("cerebro_db.runs.requests.time.monotonic", lambda: catalog.now)
    requests = Requests(cast(Catalog, catalog), 7)
    catalog.fails = True
    with pytest.raises(InvalidState):
        requests.look()
    catalog.now += 0.3
    with pytest.raises(InvalidState):
        requests.look()


def test_time_that_is_over_pauses() -> None:
    with pytest.raises(Stopped, match=r"max_seconds := 3 are over") as stopped:
        Requests(cast(Catalog, _Catalog()), 7, deadline=0.0, max_seconds=3).look()
    assert stopped.value.status == "paused"


def _failed(sqlstate: str) -> StatementFailed:
    return StatementFailed("message", sqlstate, None, None)


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (RunInterrupted("x"), "interrupted"),
        (RunCancelled("x"), "cancelled"),
        (KeyboardInterrupt(), "cancelled"),
        (_failed("57014"), "cancelled"),
        (_failed("57P01"), "interrupted"),
        (_failed("53100"), "failed"),
        (InvalidData("x"), "failed"),
        (ValueError("x"), "failed"),
    ],
)
def test_the_status_that_an_error_leaves(error: BaseException, status: str) -> None:
    assert status_after(error) == status


def _driving(
    status: str, error: str | None = None, pid: int = 7, resumed: str | None = None
) -> Driving:
    return Driving(pid, resumed, status, error, has_states=True)


def test_a_driver_that_comes_back_goes_on_with_what_is_still_its_own() -> None:
    mine = _driving("starting")
    check_still_driven(_driving("running"), mine, 1)
    check_still_driven(_driving("failed", "x"), mine, 1)
    for other in (_driving("running", pid=8), _driving("x", resumed="2026-01-01")):
        with pytest.raises(RunInterrupted, match="driven by another session"):
            check_still_driven(other, mine, 1)
    for status in ("cancelled", "paused"):
        with pytest.raises(Stopped, match="by ann") as stopped:
            check_still_driven(_driving(status, f"{status} by ann"), mine, 1)
        assert stopped.value.status == status


def test_a_run_that_somebody_else_has_ended_meanwhile_is_left_alone() -> None:
    check_unfinished(_driving("paused"), 1)
    with pytest.raises(WrongRunStatus, match="run 1 is finished, and nothing is left"):
        check_unfinished(_driving("finished"), 1)
    with pytest.raises(WrongRunStatus, match="run 1 is without its states"):
        check_unfinished(_driving("interrupted")._replace(has_states=False), 1)


class _Empty:
    """A session in which nobody has any run."""

    def run(self, *given: Any) -> list[tuple[Any, ...]]:
        return []


@pytest.mark.parametrize("ask", [Catalog.run, Catalog.lock_key, Catalog.driving])
def test_a_run_that_somebody_has_dropped(ask: Any) -> None:
    with pytest.raises(UndefinedRun, match="run_id: got 5; you have no run of that number"):
        ask(Catalog(cast(Any, _Empty())), 5)


@pytest.mark.parametrize(
    ("sqlstate", "all_of_them"),
    [
        ("53100", True),  # the disk is full
        ("57014", True),
        ("55P03", True),
        ("42501", True),
        ("23505", True),  # the hop is there already
        ("XX001", True),  # a page of the disk is damaged
        ("XX002", True),
        (InvalidState.sqlstate, False),
        (InvalidData.sqlstate, False),
        ("38000", False),  # Python
        ("22012", False),
    ],
)
def test_whose_fault_an_error_of_a_hop_is(sqlstate: str, all_of_them: Any) -> None:
    assert is_infrastructure_failure(sqlstate) is all_of_them
