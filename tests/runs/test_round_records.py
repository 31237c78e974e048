"""Records of rounds that a driver writes down for its workers: what is told of them, and in which order they are stored."""

from __future__ import annotations

import json
import operator
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from cerebro_db.core.spec import Hop
from cerebro_db.core.tasks import (
    HopResult,
    Participate,
    Result,
    RoundRecord,
    Task,
    Trained,
    round_record,
)
from cerebro_db.errors import InvalidData, InvalidState
from cerebro_db.postgres.catalog.records import COLUMNS
from cerebro_db.postgres.dialects.statements.orders import made
from cerebro_db.protocol import HopFailed, RoundReport, StateMade, StateReport
from cerebro_db.runs.catalog import RunCatalog
from cerebro_db.training.peers.updates import from_bytes, to_bytes
from cerebro_db.wire import encode
from tests.runs.test_loop import Counting, Written, report_of_hop, run

BEGAN = datetime(2026, 1, 1, tzinfo=UTC)
ORDER = [0, 1, 1, 0, 1]
RATE = 0.1 + 0.2  # no short number
COURSE = RoundReport(
    groups=2, momentum=RATE, learning_rate=RATE, probes='[{"loss": 0.25}]', counts=[2, 3],
    staleness=[1.0, 2 / 3], stalest=[2, 1], updates=to_bytes(ORDER),
)  # fmt: skip


def record(mst_key: int = 1, number: int = 0) -> RoundRecord:
    """A record of a round of two places, each its own group."""
    return round_record(mst_key, 1, number, COURSE)


def state_report(*hops: Hop, course: RoundReport | None = None) -> StateReport:
    """The report of a state that hops have left."""
    reports = [report_of_hop(hop, 10 * (hop.position + 1)) for hop in hops]
    return StateReport(hops=reports, kept=["training/0"], trained_at=1e9, round=course)


def test_the_report_of_a_round_is_its_record_to_the_bit() -> None:
    sent = state_report(Hop(3, 2, 0, 0), Hop(3, 2, 1, 1), course=COURSE)
    found = made([(3, 70, None, 1e9), (3, 30, encode(sent), 1e9 + 0.25)])
    assert found == {3: StateMade(report=sent, size=100, written=0.25)}
    assert from_bytes(COURSE.updates, len(ORDER)) == ORDER


def test_a_failed_hop_leaves_an_error_beside_the_states_of_others() -> None:
    failed = HopFailed(message="diverged", sqlstate="22000", hint=None)
    sent = state_report(Hop(2, 1, 0, 0))
    found = made([(7, 0, encode(failed), 1e9), (2, 30, encode(sent), 1e9)])
    assert found == {2: StateMade(report=sent, size=30, written=0.0), 7: failed}


@pytest.mark.parametrize("text", ["", "{}", '{"type":"made"}', '{"type":"made","hops":[1]}'])
def test_a_report_that_somebody_changed_is_refused(text: str) -> None:
    with pytest.raises(InvalidData, match="report of a hop"):
        made([(1, 1, text, 0.0)])


class Kept:
    """Keeps what is stored, or fails at a function that writes."""

    def __init__(self, fails: str = "") -> None:
        self.stored: list[tuple[str, list[Any]]] = []
        self.fails = fails
        self.recorded: list[tuple[Any, ...]] = []

    def now(self) -> datetime:
        """The server's time."""
        return BEGAN

    def execute(self, query: str, values: Any) -> list[tuple[Any, ...]]:
        """Rounds that are recorded already."""
        return self.recorded

    def call(self, function: str, run_id: int, rows: str) -> None:
        if function == self.fails:
            raise InvalidState("the session is lost")
        self.stored.append((function, [(run_id, row) for row in json.loads(rows)]))

    @property
    def tables(self) -> list[str]:
        return [table for table, _ in self.stored]


def done(catalog: RunCatalog, *, rounds: int = 1) -> None:
    """Tell of rounds of two hops, each with its record."""
    for number in range(rounds):
        catalog.round_done(record(number=number))
        for position in range(2):
            hop = Hop(1, 1, 2 * number + position, position)
            catalog.hop_done(HopResult(hop, report_of_hop(hop), 0.0, 1000.0, 0.1, 0.0))


def test_no_row_of_a_hop_is_stored_before_the_record_of_its_round() -> None:
    kept: Any = Kept()
    catalog = RunCatalog(kept, 9)
    done(catalog, rounds=2)
    catalog.flush(now=0.0)
    assert kept.stored == []
    catalog.flush()
    assert kept.tables == ["_add_updates", "_add_hops"]
    (run_id, first), (other, _) = kept.stored[0][1]
    assert (run_id, other) == (9, 9)
    assert first["updates"] == f"\\x{to_bytes(ORDER).hex()}"
    assert first["learning_rate"] == RATE
    assert first["staleness"] == f'{{"1.0","{2 / 3!r}"}}'
    catalog.flush()
    assert len(kept.stored) == 2
    lost: Any = Kept(fails="_add_updates")
    catalog = RunCatalog(lost, 9)
    done(catalog)
    with pytest.raises(InvalidState):
        catalog.flush()
    assert lost.stored == []


def test_a_record_that_is_stored_is_not_stored_again() -> None:
    kept: Any = Kept(fails="_add_hops")
    catalog = RunCatalog(kept, 9)
    done(catalog)
    with pytest.raises(InvalidState):
        catalog.flush()
    kept.fails = ""
    catalog.flush()
    assert kept.tables == ["_add_updates", "_add_hops"]


SPEC: Any = SimpleNamespace(hops_an_epoch=2, round_of=lambda hop: hop.position // 2)


@pytest.mark.parametrize("is_recorded", [False, True])
def test_what_another_driver_could_not_write_is_written_from_the_states(is_recorded: bool) -> None:
    kept: Any = Kept()
    if is_recorded:
        kept.recorded = [operator.attrgetter(*COLUMNS.split(", "))(record(3))]
    hops = Hop(3, 1, 0, 1), Hop(3, 1, 1, 0)
    averaged = Hop(4, 2, 1, 1)  # a part of a round: its state has the version -1 - 3
    left = [(3, 2, state_report(*hops, course=COURSE)), (4, -4, state_report(averaged))]
    RunCatalog(kept, 9).restore(SPEC, left)
    assert kept.tables == [*([] if is_recorded else ["_add_updates"]), "_add_hops"]
    names = ("mst_key", "epoch", "position", "partition_key")
    found = [tuple(row[name] for name in names) for _, row in kept.stored[-1][1]]
    assert found == [(3, 1, 0, 1), (3, 1, 1, 0), (4, 2, 1, 1)]


class Recording(Counting):
    """Workers of which whoever leads a round tells its record."""

    def _result(self, task: Task) -> Result:
        found = super()._result(task)
        if isinstance(task, Participate) and task.is_root:
            assert isinstance(found, Trained)
            return Trained(found.made, record=record(task.hops[0].mst_key))
        return found


class Listening(Written):
    """A catalog that keeps the order of what it is told."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[tuple[str, int]] = []

    def round_done(self, record: RoundRecord) -> None:
        self.told.append(("round", record.mst_key))

    def hop_done(self, result: HopResult) -> None:
        self.told.append(("hop", result.hop.mst_key))


def test_the_record_of_a_round_is_reported_before_its_hops(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.runs.test_loop.Written", Listening)
    _, written, _ = run(3, 1, "parameter_server", costs=2, executor=Recording(3, 1))
    assert isinstance(written, Listening)
    rounds = [written.told[start : start + 4] for start in range(0, len(written.told), 4)]
    assert len(rounds) == 2 * 2
    for one in rounds:
        key = one[0][1]
        assert one == [("round", key), *[("hop", key)] * 3]
