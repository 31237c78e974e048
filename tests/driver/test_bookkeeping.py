"""What a run remembers: which scores are due, and which states must outlive their hop."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from cerebro_db.configs.model_outputs import outputs_of
from cerebro_db.configs.parameters import parse_compile_params
from cerebro_db.database.dialects.postgresql_training import PostgreSQLTraining, StateTables
from cerebro_db.database.sessions import StatementFailed
from cerebro_db.driver.fit_request import FitRequest
from cerebro_db.driver.goals import badness, common_goal
from cerebro_db.driver.jobs import Hops
from cerebro_db.driver.progress import EpochReport
from cerebro_db.driver.retention import Retention
from cerebro_db.driver.run import Run
from cerebro_db.driver.scoreboard import Scan, ScoreBoard
from cerebro_db.driver.workers import Worker
from cerebro_db.errors import InvalidArgument
from cerebro_db.planning.dispatch import Dispatcher
from cerebro_db.planning.orders import Visit

PARTITIONS = {"training": [0, 1], "validation": [0]}
_session: Any = None
WORKER = Worker(0, _session)


def drain(board: ScoreBoard, alive: set[int], kept: set[str] | None = None) -> list[Scan]:
    """Take scans until none is handed out."""
    scans = []
    while (scan := board.next(alive, kept or set())) is not None:
        scans.append(scan)
    return scans


def test_in_memory_a_configuration_is_scored_without_the_others() -> None:
    board = ScoreBoard(PARTITIONS, [2], waits=False)
    board.finished(1, 1)
    assert drain(board, {1, 2}) == []
    board.finished(1, 2)
    scans = drain(board, {1, 2})
    assert [scan.name for scan in scans] == ["training/0", "training/1", "validation/0"]
    assert scans[0].group.mst_keys == (1,)
    assert not board.done
    assert [board.scanned(scan, {}, {}) for scan in scans] == [False, False, True]
    assert board.done


def test_beyond_memory_one_scan_serves_all_configurations() -> None:
    board = ScoreBoard(PARTITIONS, [1], waits=True)
    board.finished(1, 1)
    assert drain(board, {1, 2, 3}) == []
    board.finished(3, 1)
    board.drop(2)
    scans = drain(board, {1, 3})
    assert len(scans) == 3
    assert scans[0].group.mst_keys == (1, 3)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """What the board takes for the time."""
    now = [100.0]
    monkeypatch.setattr("cerebro_db.driver.scoreboard.time.monotonic", lambda: now[0])
    return now


def test_configurations_that_finish_within_a_moment_share_a_scan(clock: list[float]) -> None:
    board = ScoreBoard(PARTITIONS, [1], waits=False, patience=0.5)
    alive = {1, 2, 3, 4}
    board.finished(1, 1)
    assert board.next(alive, set(), awaited=()) is None
    clock[0] += 0.4
    board.finished(2, 1)
    assert board.next(alive, set(), awaited=()) is None
    clock[0] += 0.1
    scan = board.next(alive, set(), awaited=())
    assert scan is not None
    assert scan.group.mst_keys == (1, 2)
    board.finished(3, 1)  # begins a moment of its own
    others = [board.next(alive, set(), awaited=()) for _ in range(3)]
    assert [other.group if other else None for other in others] == [scan.group, scan.group, None]
    board.finished(4, 1)  # nobody else is left
    last = board.next(alive, set(), awaited=())
    assert last is not None
    assert last.group.mst_keys == (3, 4)


@pytest.mark.parametrize(
    ("hop_seconds", "idle", "seconds"),
    [
        (0.4, True, 0.5),
        (0.4, False, 0.5),
        (3.0, True, 0.0),  # it would wait for as long as others train
        (3.0, False, 3.0),  # others finish the epoch meanwhile
        (5.0, False, 5.0),
        (6.0, False, 0.0),  # nobody wants to wait for their scores that long
    ],
)
def test_what_can_be_trained_meanwhile_tells_how_long_scores_wait(
    clock: list[float], hop_seconds: float, idle: bool, seconds: float
) -> None:
    board = ScoreBoard(PARTITIONS, [1], waits=False, patience=0.5, longest=5.0)
    board.finished(1, 1, hop_seconds)
    if seconds:
        clock[0] += 0.9 * seconds
        assert board.next({1, 2, 3}, set(), awaited=(), idle=idle) is None
        board.finished(2, 1, hop_seconds)  # does not begin anew
        clock[0] += 0.1 * seconds + 0.01
    scan = board.next({1, 2, 3}, set(), awaited=(), idle=idle)
    assert scan is not None
    assert scan.group.mst_keys == ((1, 2) if seconds else (1,))


def test_one_long_hop_ends_the_waiting(clock: list[float]) -> None:
    board = ScoreBoard(PARTITIONS, [1], waits=False, patience=0.5, longest=5.0)
    board.finished(1, 1, hop_seconds=4.0)
    assert board.next({1, 2, 3}, set(), awaited=(), idle=False) is None
    board.finished(2, 1, hop_seconds=6.0)
    scan = board.next({1, 2, 3}, set(), awaited=(), idle=False)
    assert scan is not None
    assert scan.group.mst_keys == (1, 2)


@pytest.mark.parametrize(("idle", "hop_seconds"), [(True, 0.0), (False, 0.0), (False, 3.0)])
@pytest.mark.parametrize(("alive", "awaited"), [({1}, ()), ({1, 2}, (1,)), ({1, 2}, None)])
def test_nobody_waits_for_a_moment_for_nothing(
    clock: list[float],
    alive: set[int],
    awaited: tuple[int, ...] | None,
    idle: bool,
    hop_seconds: float,
) -> None:
    """All are there, or one is waited for, or there is nothing else to do."""
    board = ScoreBoard(PARTITIONS, [1], waits=False, patience=0.5, longest=5.0)
    board.finished(1, 1, hop_seconds)
    assert board.next({1, 2}, set(), awaited=(2,), idle=idle) is None
    scan = board.next(alive, set(), awaited=awaited, idle=idle)
    assert scan is not None
    assert scan.group.mst_keys == (1,)


def test_a_worker_scans_what_it_keeps_first() -> None:
    board = ScoreBoard(PARTITIONS, [1], waits=False)
    board.finished(1, 1)
    first = board.next({1}, {"validation/0"})
    assert first is not None
    assert first.name == "validation/0"


def test_one_statement_scans_all_partitions_of_a_data_set() -> None:
    board = ScoreBoard(PARTITIONS, [1], waits=False)
    board.finished(1, 1)
    assert [scan.name for scan in board.next_all({1})] == ["training/0", "training/1"]
    scans = board.next_all({1})
    assert [scan.name for scan in scans] == ["validation/0"]
    assert board.next_all({1}) == []
    assert not board.done
    assert not board.scanned(scans[0], {}, {})


def test_scans_of_configurations_that_ended_meanwhile_are_done_at_once() -> None:
    run: Any = object.__new__(Run)
    run._board, run._alive = ScoreBoard(PARTITIONS, [1], waits=False), {1: "a configuration"}
    run._tables, run._combinations, run._workers = PARTITIONS, [], [WORKER]
    run._sql = PostgreSQLTraining()
    run._board.finished(1, 1)
    first = run._next_scan(WORKER, None, idle=True)
    assert first.name == "training/0"
    run._alive = {}  # someone cancelled it
    assert run._next_scan(WORKER, None, idle=True) is None
    assert run._combinations == []
    run._scanned(first, {"partials": {}, "errors": {}})
    assert [job.dataset for job in run._combinations] == ["training", "validation"]
    assert run._board.done


HOP = StateTables("run_x", hops_an_epoch=4, every_hop=True)
EPOCH = StateTables("run_x", hops_an_epoch=4, every_hop=False)


def hop(retention: Retention, version: int) -> list[int]:
    """Configuration 1 goes from a version to the next; returns what nothing needs after that."""
    retention.hop_done(1, version + 1)
    return [version for _, version in retention.useless()]


def test_a_state_goes_with_the_hop_that_makes_the_next_one() -> None:
    retention = Retention(HOP, [1])
    assert [hop(retention, version) for version in range(4)] == [[], [1], [2], [3]]


def test_a_state_that_is_to_be_scored_outlives_the_next_hop_and_no_more() -> None:
    retention = Retention(HOP, [1], versions=[(1, 4)], done=[(1, 4)])
    assert hop(retention, 4) == []
    assert retention.useless() == []
    retention.scored(1, 4)
    assert retention.useless() == [(1, 4)]
    assert retention.useless() == []


def test_a_state_that_was_scored_before_the_next_hop_starts_goes_with_that_hop() -> None:
    retention = Retention(HOP, [1], versions=[(1, 4)], done=[(1, 4)], scored=[(1, 1)])
    assert hop(retention, 4) == [4]
    assert retention.useless() == []


def test_a_state_scored_while_the_next_hop_runs_goes_after_it() -> None:
    retention = Retention(HOP, [1], versions=[(1, 4)], done=[(1, 4)])
    retention.scored(1, 4)
    assert retention.useless() == []
    assert hop(retention, 4) == [4]


def test_the_last_state_that_outlives_a_crash_stays_until_there_is_another() -> None:
    retention = Retention(EPOCH, [], versions=[(1, 0)])
    assert [hop(retention, version) for version in range(5)] == [[], [1], [2], [0, 3], []]
    assert [EPOCH.lasts(version) for version in (0, 1, 3, 4)] == [True, False, False, True]


@pytest.mark.parametrize("states", [HOP, EPOCH])
def test_never_more_than_three_states(states: StateTables) -> None:
    retention = Retention(states, range(1, 10))
    version = 0
    while not retention.full(1):
        hop(retention, version)
        version += 1
    assert version >= 8
    retention.scored(1, 4)
    assert retention.useless() == [(1, 4)]
    assert not retention.full(1)
    retention.drop(1)
    assert not retention.full(1)


@pytest.mark.parametrize(
    ("metrics", "goal"),
    [
        ("['accuracy']", "max"),
        ("['AUC','mae']", "max"),
        ("['mae','accuracy']", "min"),
        ("['RootMeanSquaredError']", "min"),
        ("['KLDivergence']", "min"),
        ("['BinaryCrossentropy']", "min"),
        ("['R2Score']", "max"),
        ("[]", "loss"),
    ],
)
def test_the_first_metric_decides_which_way_is_better(metrics: str, goal: str) -> None:
    params = parse_compile_params(f"loss='mse',optimizer='Adam',metrics={metrics}")
    assert common_goal([outputs_of(params, [""])]) == goal


@pytest.mark.parametrize(
    ("first", "second", "goal"),
    [
        ("['AUC']", "[AUC(name='area'),'mae']", "max"),
        ("['AUC']", "[AUC(num_thresholds=200)]", "max"),
        ("['AUC']", "['accuracy']", "loss"),
        ("['AUC']", "[AUC(curve='PR')]", "loss"),
        ("['mae']", "[]", "loss"),
    ],
)
def test_one_metric_is_never_ranked_against_another(first: str, second: str, goal: str) -> None:
    given = [
        outputs_of(parse_compile_params(f"loss='mse',optimizer='Adam',metrics={metrics}"), [""])
        for metrics in (first, second)
    ]
    assert common_goal(given) == common_goal(reversed(given)) == goal


def test_what_was_not_measured_is_last() -> None:
    nan = float("nan")
    assert badness("max", 0.9, 2.0) < badness("max", 0.8, 1.0) < badness("max", nan, 0.0)
    assert badness("min", 0.8, None) < badness("min", 0.9, 1.0) < badness("min", None, 0.0)
    assert badness("loss", None, 0.5) < badness("loss", 0.9, 0.6) < badness("loss", 0.9, nan)


def test_metrics_are_due_by_frequency_and_at_the_end() -> None:
    request = FitRequest("a", "b", "c", 5, metrics_compute_frequency=2)
    assert request.metric_epochs() == [2, 4, 5]
    assert FitRequest("a", "b", "c", 5).metric_epochs() == [5]


@pytest.mark.parametrize("changes", [{"num_iterations": 0}, {"seed": None}, {"num_workers": 257}])
def test_numbers_out_of_range_are_refused(changes: dict[str, int | None]) -> None:
    arguments = {"num_iterations": 1} | changes
    with pytest.raises(InvalidArgument, match=r"got .*; allowed: \d+ to \d+"):
        FitRequest("a", "b", "c", **arguments).check()  # type: ignore[arg-type]


def test_an_epoch_is_told_of_when_the_last_hop_of_a_cancelled_configuration_has_ended() -> None:
    """The other one has finished both epochs; while it was under way nobody could tell."""
    lines: list[str] = []
    request = SimpleNamespace(num_iterations=2)
    setup: Any = SimpleNamespace(configurations=[], validation=None, request=request)
    run: Any = object.__new__(Run)
    run._report, run._alive, run._seconds_before, run._began = (
        EpochReport(setup, lines.append),
        {},
        0.0,
        0.0,
    )
    run._board, run._partitions = ScoreBoard({"training": [0]}, [], waits=False), [0]
    run._dispatcher = Dispatcher(1, {1: 1.0, 2: 1.0})
    run._dispatcher.add_visits([Visit(key, epoch, 0, 0) for key in (1, 2) for epoch in (1, 2)])
    done = [run._dispatcher.next_visit(0) for _ in range(2)]
    for visit in done:
        run._dispatcher.finished(visit)
        run._report.finished(visit.epoch)
    run._report_epochs()
    under_way = [run._dispatcher.next_visit(0) for _ in range(2)]
    run._dispatcher.finished(under_way[0])
    run._report.finished(2)
    run._dispatcher.drop(under_way[1].mst_key)
    run._report_epochs()
    assert [line.partition(" of")[0] for line in lines] == ["epoch 1"]
    run._failed(Hops((under_way[1],)), StatementFailed("cancelled", "57014", None, None))
    assert [line.partition(" of")[0] for line in lines] == ["epoch 1", "epoch 2"]
