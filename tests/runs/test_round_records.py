"""Records of rounds that a driver writes down for its workers: what is told of them, and in which order they are stored."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from cerebro_db.core.spec import Hop
from cerebro_db.core.tasks import (
    HopFigures,
    HopResult,
    Participate,
    Result,
    RoundRecord,
    Task,
    Trained,
)
from cerebro_db.errors import InvalidState
from cerebro_db.postgres.dialects.choice import dialect_of
from cerebro_db.postgres.dialects.postgresql.training import HopOrder, Member
from cerebro_db.runs.catalog import RunCatalog
from cerebro_db.server.memory import WorkerMemory
from cerebro_db.server.training import _result
from cerebro_db.training.hop import HopReport
from cerebro_db.training.peers.parameter_server import Record
from cerebro_db.training.peers.updates import Staleness, from_bytes, to_bytes
from tests.runs.test_loop import Counting, Written, run

BEGAN = datetime(2026, 1, 1, tzinfo=UTC)
FIGURES = HopFigures(BEGAN, 0.0, 0.1, 0.0, 0.5, False, True, 500)
ORDER = [0, 1, 1, 0, 1]
REPORT = HopReport(30, 0.5, 0.125, 0.25, True, False, 700)
NOBODY: Any = None


def record(mst_key: int = 1, number: int = 0) -> RoundRecord:
    """A record of a round of two places, each its own group."""
    return RoundRecord(
        mst_key, 1, number, 2, 0.4, None, "", [2, 3], [1.0, 0.5], [2, 1], to_bytes(ORDER)
    )


def led() -> WorkerMemory:
    """The memory of a trainer that has led a round of two."""
    memory = WorkerMemory(1, NOBODY, NOBODY, NOBODY, NOBODY)
    memory.kept = lambda: ["training/0", "training/1"]  # type: ignore[method-assign]
    memory.reports = [vars(REPORT), vars(REPORT) | {"rows": 20}]
    staleness = [Staleness(2, 2, 2), Staleness(3, 2, 1)]
    rate = 0.1 + 0.2  # no short number
    memory.record = Record(2, rate, rate, '[{"loss": 0.25}]', staleness, to_bytes(ORDER))
    return memory


def order_of(mst_key: int, epoch: int) -> HopOrder:
    """As much of an order as counts here."""
    return HopOrder(
        None, None, 9, mst_key, epoch, 1, 1, 0, 2, None, 1, 0.0, "{}", None, 1, False, None
    )


def row_of(memory: WorkerMemory) -> tuple[Any, ...]:
    """What the statement of whoever leads returns on segments, of what its trainer tells."""
    told = _result(memory, REPORT)
    figures = (told["read_seconds"], told["train_seconds"], 0.0, told["loss"], True, False, 700)
    return (100, told["rows"], told["kept"], BEGAN, *figures)


def test_a_round_is_reported_with_the_result_of_its_hop_on_segments_only() -> None:
    memory = led()
    assert _result(memory, REPORT)["kept"] == ["training/0", "training/1"]
    memory.tells_rounds = True
    assert json.loads(_result(memory, REPORT)["kept"][-1])["round"]["counts"] == [2, 3]
    memory.begin("another hop")
    assert _result(memory, REPORT)["kept"] == ["training/0", "training/1"]


def test_what_is_reported_a_round_is_its_record_to_the_bit() -> None:
    memory, sql = led(), dialect_of(90426, True).training
    memory.tells_rounds = True
    members = [Member(place, place, place, 7, 0.0) for place in range(2)]
    made, of_hops = sql.led([row_of(memory)], order_of(3, 2), members, 4)
    assert made.kept == ["training/0", "training/1"]
    assert [(one.rows, one.figures and one.figures.loss) for one in of_hops] == [
        (30, 0.5),
        (20, 0.5),
    ]
    found = made.record
    assert found is not None
    assert (found.mst_key, found.epoch, found.round) == (3, 2, 4)
    assert (found.groups, found.momentum, found.learning_rate) == (2, 0.1 + 0.2, 0.1 + 0.2)
    assert (found.counts, found.staleness, found.stalest) == ([2, 3], [1.0, 2 / 3], [2, 1])
    assert found.probes == '[{"loss": 0.25}]'
    assert from_bytes(found.updates, len(ORDER)) == ORDER
    assert made.course == (2, 0.1 + 0.2)
    # One that is made again in its order is recorded already.
    again, _ = sql.led([row_of(memory)], order_of(3, 2), members, None)
    assert (again.record, again.course) == (None, None)


def test_a_round_of_others_that_holds_no_weights_has_no_record() -> None:
    memory, sql = led(), dialect_of(90426, True).training
    memory.tells_rounds, memory.record = True, None
    made, of_hops = sql.led([row_of(memory)], order_of(3, 2), [])
    assert made.record is None
    assert [one.rows for one in of_hops] == [30, 20]


class Kept:
    """Keeps what is stored, or fails at the statements of a table."""

    def __init__(self, fails: str = "") -> None:
        self.stored: list[tuple[str, list[Any]]] = []
        self.fails = fails

    def store(self, query: str, values: list[Any]) -> None:
        table = query.split()[2]
        if table == self.fails:
            raise InvalidState("the session is lost")
        self.stored.append((table, values))

    @property
    def tables(self) -> list[str]:
        return [table for table, _ in self.stored]


def done(catalog: RunCatalog, *, rounds: int = 1) -> None:
    """Tell of rounds of two hops, each with its record."""
    for number in range(rounds):
        catalog.round_done(record(number=number))
        for position in range(2):
            hop = Hop(1, 1, 2 * number + position, position)
            catalog.hop_done(HopResult(hop, 0, 7, 0.0, 1000.0, 0.1, 10, FIGURES))


def test_no_row_of_a_hop_is_stored_before_the_record_of_its_round() -> None:
    kept: Any = Kept()
    catalog = RunCatalog(kept, 9)
    done(catalog, rounds=2)
    catalog.flush(now=0.0)
    assert kept.stored == []
    catalog.flush()
    assert kept.tables == ["cerebro._updates", "cerebro._hops"]
    values = kept.stored[0][1]
    assert [values[start] for start in (0, 12)] == [9, 9]
    assert values[11] == to_bytes(ORDER)
    catalog.flush()
    assert len(kept.stored) == 2
    lost: Any = Kept(fails="cerebro._updates")
    catalog = RunCatalog(lost, 9)
    done(catalog)
    with pytest.raises(InvalidState):
        catalog.flush()
    assert lost.stored == []


def test_a_record_that_is_stored_is_not_stored_again() -> None:
    kept: Any = Kept(fails="cerebro._hops")
    catalog = RunCatalog(kept, 9)
    done(catalog)
    with pytest.raises(InvalidState):
        catalog.flush()
    kept.fails = ""
    catalog.flush()
    assert kept.tables == ["cerebro._updates", "cerebro._hops"]


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
