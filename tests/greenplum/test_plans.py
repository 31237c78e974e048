"""What the statements of training move between segments, as their plans tell."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from conftest import Sql

from cerebro_db.database.dialects.greenplum import Greenplum
from cerebro_db.database.dialects.postgresql_training import HopOrder, ScanOrder
from cerebro_db.database.names import QualifiedName
from cerebro_db.database.packed import PackedTable, load_packed
from cerebro_db.database.sessions import Session, SessionLost, no_tick

SQL = Greenplum(90426).training
STATES = QualifiedName("public", "states")


@pytest.fixture
def worker(segments: Sql) -> Iterator[Session]:
    """A session such as drivers use, and a packed table."""
    segments.run(
        "CREATE TABLE source AS SELECT ARRAY[g, g]::real[] AS x, g % 2 AS y "
        "FROM generate_series(1, 600) g DISTRIBUTED RANDOMLY"
    )
    segments.run("SELECT cerebro_pack('source', 'packed', 'y', 'x', 50)")
    session = Session(segments.dsn, "test")
    session.settle()
    session.run("; ".join(Greenplum(90426).session_settings().first))
    for statement in SQL.create_states(STATES, True):
        session.run(statement)
    yield session
    session.close()
    segments.run("DROP TABLE source, packed, packed_summary, states")


@pytest.fixture
def packed(worker: Session) -> PackedTable:
    return load_packed(worker, "public.packed", "source_table", no_tick)


def _order(**changes: object) -> HopOrder:
    fields: dict[str, object] = dict(
        source=STATES, target=STATES, run_id=1, mst_key=1, epoch=1, position=1, partition_key=1,
        version=1, next_partition_key=2, worker=0, waited=0.0, task="{}", salt="s", passes=1,
        reads=True, weights_of=None, preparation="{}",
    )  # fmt: skip
    return HopOrder(**{**fields, **changes})  # type: ignore[arg-type]


def _plan(worker: Session, sql: str, parameters: list[object]) -> list[str]:
    lines = worker.run(f"EXPLAIN {sql}", parameters, no_tick)
    return [str(line) for (line,) in lines]


def _first(statement: tuple[str, list[object]], number: int = 0) -> tuple[str, list[object]]:
    """One of the statements of a text, with its parameters."""
    texts = statement[0].strip().split(";")
    before = sum(text.count("%s") for text in texts[:number])
    return texts[number], statement[1][before : before + texts[number].count("%s")]


@pytest.mark.parametrize("reads", [True, False])
@pytest.mark.parametrize("passes", [1, 3])
def test_a_hop_moves_nothing_but_the_state(
    worker: Session, packed: PackedTable, reads: bool, passes: int
) -> None:
    order = _order(reads=reads, passes=passes)
    plan = _plan(worker, *_first(SQL.hop(packed, order)))
    motions = [number for number, line in enumerate(plan) if "Motion" in line]
    aggregate = next(number for number, line in enumerate(plan) if "Aggregate" in line)
    assert len(motions) == 1, plan
    assert motions[0] < aggregate, plan


def test_the_state_goes_where_the_configuration_goes_next(
    worker: Session, packed: PackedTable
) -> None:
    _, parameters = _first(SQL.hop(packed, _order(next_partition_key=2)))
    keys = {p.partition_key: p.segment_key for p in packed.partitions}
    assert parameters[0] == keys[2]
    _, parameters = _first(SQL.hop(packed, _order(next_partition_key=None)))
    assert parameters[0] == keys[1]


def test_a_scan_moves_no_buffers(worker: Session, packed: PackedTable) -> None:
    order = ScanOrder([STATES], 1, "{}", [1, 2], [3, 3], ["{}", "{}"], True, "{}")
    statement = SQL.scan(packed, order)
    worker.run("BEGIN")
    worker.run(*_first(statement, 0))
    cursor, parameters = _first(statement, 1)
    plan = _plan(worker, cursor[cursor.index("SELECT") :], parameters)
    worker.run("ROLLBACK")
    motions = [line for line in plan if "Motion" in line]
    assert len(motions) == 1, plan
    assert "Gather Motion" in motions[0], plan
    assert plan.index(motions[0]) < next(n for n, line in enumerate(plan) if "Aggregate" in line)


def test_a_table_that_was_packed_elsewhere_is_refused(segments: Sql, worker: Session) -> None:
    segments.run("CREATE TABLE moved AS SELECT * FROM packed DISTRIBUTED RANDOMLY")
    segments.run("ALTER TABLE moved DROP COLUMN segment_key")
    segments.run("CREATE TABLE moved_summary AS SELECT * FROM packed_summary DISTRIBUTED RANDOMLY")
    try:
        found = load_packed(worker, "public.moved", "source_table", no_tick)
        with pytest.raises(Exception, match="do not lie on one segment each"):
            SQL.hop(found, _order())
    finally:
        segments.run("DROP TABLE moved, moved_summary")


def test_a_segments_process_that_is_terminated_ends_the_session(
    segments: Sql, worker: Session
) -> None:
    worker.run(
        "CREATE FUNCTION pg_temp.dies(n integer) RETURNS integer LANGUAGE plpython3u AS "
        "'import os, time; os.kill(os.getpid(), 15); time.sleep(5)'"
    )
    with pytest.raises(SessionLost):
        worker.run("SELECT pg_temp.dies(gp_segment_id) FROM gp_dist_random('gp_id') LIMIT 1")
    assert worker.closed
