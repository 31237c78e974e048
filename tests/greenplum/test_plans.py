"""What the statements of training move between segments, as their plans tell."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

import pytest

from cerebro_db.postgres.dialects.greenplum6.dialect import Greenplum6
from cerebro_db.postgres.dialects.segments.rotation import Rotation
from cerebro_db.postgres.dialects.statements.orders import HopOrder, ScanOrder, StateTables
from cerebro_db.postgres.names import QualifiedName
from cerebro_db.postgres.sessions.errors import SessionLost, StatementFailed
from cerebro_db.postgres.sessions.session import Session
from cerebro_db.postgres.tables.fingerprint import print_query
from cerebro_db.postgres.tables.packed import PackedTable, load_packed
from cerebro_db.runs.results import model_tables, models_from_states
from conftest import Sql

SQL, ROTATION = Greenplum6(90426).training, Rotation()
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
    session.run("; ".join(Greenplum6(90426).session_settings()))
    session.run(SQL.worker_settings(StateTables("states", 3, True)))
    for statement in SQL.create_states(STATES, True):
        session.run(statement)
    yield session
    session.close()
    segments.run("DROP TABLE source, packed, packed_summary, states")


@pytest.fixture
def packed(worker: Session) -> PackedTable:
    return load_packed(worker, "public.packed", "source_table")


def _order(**changes: object) -> HopOrder:
    fields: dict[str, object] = dict(
        source=STATES, target=STATES, run_id=1, mst_key=1, epoch=1, position=1, partition_key=1,
        version=1, makes=2, next_partition_key=0, task="{}", salt="s", passes=1,
        reads=True, weights_of=None, preparation="{}",
    )  # fmt: skip
    return HopOrder(**{**fields, **changes})  # type: ignore[arg-type]


def _steps(packed: PackedTable, **changes: object) -> list[HopOrder]:
    """Orders of a step on all segments: each configuration goes on to the next partition."""
    keys = [partition.partition_key for partition in packed.partitions]
    return [
        _order(
            mst_key=key + 1, partition_key=key, next_partition_key=(key + 1) % len(keys), **changes
        )
        for key in keys
    ]


def _scans(packed: PackedTable) -> list[ScanOrder]:
    return [
        ScanOrder([STATES], p.partition_key, "{}", [1, 2], [3, 3], ["{}", "{}"], True, "{}")
        for p in packed.partitions
    ]


@pytest.fixture(params=["off", "on"])
def planner(request: pytest.FixtureRequest, worker: Session) -> str:
    """Whether GPORCA may plan."""
    if request.param == "on":
        try:
            worker.run("SET optimizer = on; SET optimizer_enable_orderedagg = on")
        except StatementFailed:
            pytest.skip("this server was built without GPORCA")
    return str(request.param)


def _aggregation(text: str) -> str:
    """The query of a statement that trains or scores, down to its groups."""
    found = re.search(
        r"SELECT (?:i\.\w+,\s+)?cerebro\.cerebro_.*GROUP BY i\.segment_key(?:, i\.mst_key)?",
        text,
        re.DOTALL,
    )
    assert found is not None
    return found.group()


def _check_one_stage(plan: list[str]) -> None:
    """One motion, above the only aggregate."""
    motions = [number for number, line in enumerate(plan) if "Motion" in line]
    aggregates = [number for number, line in enumerate(plan) if "Aggregate" in line]
    assert len(motions) == 1, plan
    assert len(aggregates) == 1, plan
    assert motions[0] < aggregates[0], plan


def _plan(worker: Session, sql: str, parameters: list[object]) -> list[str]:
    lines = worker.run(f"EXPLAIN {sql}", parameters)
    return [str(line) for (line,) in lines]


def _first(statement: tuple[str, list[object]], number: int = 0) -> tuple[str, list[object]]:
    """One of the statements of a text, with its parameters."""
    texts = statement[0].strip().split(";")
    before = sum(text.count("%s") for text in texts[:number])
    return texts[number], statement[1][before : before + texts[number].count("%s")]


def _carried(worker: Session, sql: str) -> set[str]:
    """The columns of tables that the motions of a plan carry, as they are."""
    plan = [str(line) for (line,) in worker.run(f"EXPLAIN VERBOSE {sql}")]
    motions = [number for number, line in enumerate(plan) if "Motion" in line]
    assert motions, plan
    outputs = [plan[number + 1].strip().removeprefix("Output: ") for number in motions]
    return {column.rpartition(".")[2] for output in outputs for column in output.split(", ")}


def test_what_tells_of_a_change_moves_no_rows_of_a_packed_table(
    worker: Session, packed: PackedTable, planner: str
) -> None:
    carried = _carried(worker, print_query(packed))
    assert {"partition_key", "buffer_id"} <= carried
    assert carried.isdisjoint({"x", "y", "*"})


def test_what_tells_of_the_states_there_are_moves_none_of_them(
    worker: Session, planner: str
) -> None:
    carried = _carried(worker, SQL.contents(STATES))
    assert {"mst_key", "version"} <= carried
    assert carried.isdisjoint({"state", "*"})


@pytest.mark.parametrize("reads", [True, False])
@pytest.mark.parametrize("passes", [1, 3])
def test_a_hop_moves_nothing_but_the_state(
    worker: Session, packed: PackedTable, reads: bool, passes: int, planner: str
) -> None:
    order = _order(reads=reads, passes=passes)
    told, *plan = _plan(worker, *_first(SQL.hop(packed, order)))
    assert "Gather Motion" in told  # of RETURNING, which returns no state
    _check_one_stage(plan)
    assert any("Redistribute Motion" in line for line in plan), plan


@pytest.mark.parametrize("changes", [{}, {"passes": 3}, {"reads": False}, {"source": None}])
def test_rows_of_a_hop_elsewhere_move_to_the_home_of_its_worker(
    worker: Session, packed: PackedTable, changes: dict[str, object], planner: str
) -> None:
    order = _order(home=packed.partitions[0], partition_key=1, **changes)
    sql, parameters = _first(SQL.hop(packed, order))
    assert parameters[0] == packed.partitions[0].segment_key
    told, *plan = _plan(worker, sql, parameters)
    assert "Gather Motion" in told  # of RETURNING, which returns no state
    _check_moved(plan, "Redistribute Motion")


def test_rows_of_a_scan_elsewhere_move_to_the_home_of_its_worker(
    worker: Session, packed: PackedTable, planner: str
) -> None:
    order = replace(_scans(packed)[1], home=packed.partitions[0])
    statement = SQL.scan(packed, order)
    worker.run("BEGIN")
    for number in range(3):
        worker.run(*_first(statement, number))
    cursor, parameters = _first(statement, 3)
    plan = _plan(worker, cursor[cursor.index("SELECT") :], parameters)
    worker.run("ROLLBACK")
    _check_moved(plan, "Gather Motion")


def test_rows_that_moved_are_sorted_within_the_memory_of_a_statement(worker: Session) -> None:
    worker.run("CREATE TEMPORARY TABLE large (id int, x text) DISTRIBUTED BY (id)")
    worker.run("ALTER TABLE pg_temp.large ALTER x SET STORAGE EXTERNAL")
    worker.run(
        "INSERT INTO pg_temp.large SELECT g, repeat('x', 1000000) FROM generate_series(1, 30) g"
    )
    worker.run("SET statement_mem = '2MB'")
    sql = (
        "EXPLAIN ANALYZE SELECT count(i.x ORDER BY i.id DESC) "
        "FROM (SELECT 1 AS key, l.id, l.x FROM pg_temp.large l) i WHERE i.key = 1 GROUP BY i.key"
    )
    plan = [str(line) for (line,) in worker.run(sql)]
    assert any("Redistribute Motion" in line for line in plan), plan
    used = [int(size) for line in plan for size in re.findall(r"Work_mem: (\d+)K bytes max", line)]
    assert max(used) < 10_000, plan
    assert any("bytes wanted" in line for line in plan), plan


def _check_moved(plan: list[str], above: str) -> None:
    """One motion above the only aggregate, and one below it, which sorts no rows but those of a group."""
    nodes = [line for line in plan if re.search("Motion|Aggregate|Sort  ", line)]
    assert len(nodes) == 3, plan
    assert above in nodes[0], plan
    assert "Aggregate" in nodes[1], plan
    assert "Redistribute Motion" in nodes[2], plan


def _together(**changes: object) -> list[HopOrder]:
    """Orders of configurations that are trained on one partition by one statement."""
    others = QualifiedName("public", "states_too")
    sources = (STATES, others, None)
    return [
        _order(mst_key=key, source=source, reads=False, next_partition_key=key % 2, **changes)
        for key, source in enumerate(sources, 1)
    ]


def test_hops_of_one_statement_move_nothing_but_the_states(
    worker: Session, packed: PackedTable, planner: str
) -> None:
    worker.run(
        "CREATE TEMPORARY TABLE states_too (LIKE public.states) DISTRIBUTED BY (segment_key)"
    )
    text, parameters = SQL.hops(packed, _together())
    text = text.replace('"public"."states_too"', "states_too").replace(
        "public.states_too", "states_too"
    )
    told, *plan = _plan(worker, text, parameters)
    assert "Gather Motion" in told
    _check_one_stage(plan)
    assert any("Redistribute Motion" in line for line in plan), plan
    # Sorted by what groups them: one is trained, and its state taken, before the next begins.
    assert any("GroupAggregate" in line for line in plan), plan


@pytest.mark.parametrize("changes", [{}, {"passes": 3}, {"reads": False}, {"source": None}])
def test_a_step_moves_nothing_but_the_states(
    worker: Session, packed: PackedTable, changes: dict[str, object], planner: str
) -> None:
    orders = _steps(packed, **changes)
    told, *plan = _plan(worker, *_first(ROTATION.step(packed, orders)))
    assert "Gather Motion" in told  # of RETURNING, which returns no state
    _check_one_stage(plan)
    assert any("Redistribute Motion" in line for line in plan), plan


def test_gporca_itself_moves_no_buffers(worker: Session, packed: PackedTable, planner: str) -> None:
    """It hands fields of composite values to the other planner, but plans what is below them."""
    if planner == "off":
        pytest.skip("the other planner's plans are looked at above")
    hop = _first(SQL.hop(packed, _order(passes=3)))
    step = _first(ROTATION.step(packed, _steps(packed, passes=3)))
    hops = SQL.hops(packed, [_order(mst_key=key, reads=False) for key in (1, 2)])
    for text, parameters in (hop, step, hops):
        query = _aggregation(text)
        before = text[: text.index(query)].count("%s")
        given = parameters[before : before + query.count("%s")]
        plan = _plan(worker, query, given)
        assert "GPORCA" in plan[-1], plan
        _check_one_stage(plan)


def test_a_step_sends_each_state_to_its_next_segment(worker: Session, packed: PackedTable) -> None:
    keys = {p.partition_key: p.segment_key for p in packed.partitions}
    orders = _steps(packed)
    text, parameters = ROTATION.step(packed, orders)
    goals = text[text.index("SELECT") : text.index("::integer")]
    assert goals.count("WHEN") == len(keys)
    expected = [
        key
        for order in orders
        for key in (keys[order.partition_key], keys[order.next_partition_key or 0])
    ]
    assert parameters[: 2 * len(keys)] == expected


def test_the_state_goes_where_the_configuration_goes_next(
    worker: Session, packed: PackedTable
) -> None:
    _, parameters = _first(SQL.hop(packed, _order(next_partition_key=0)))
    keys = {p.partition_key: p.segment_key for p in packed.partitions}
    assert parameters[0] == keys[0]
    _, parameters = _first(SQL.hop(packed, _order(next_partition_key=None)))
    assert parameters[0] == keys[1]


@pytest.mark.parametrize("on_all", [False, True])
def test_a_scan_moves_no_buffers(
    worker: Session, packed: PackedTable, on_all: bool, planner: str
) -> None:
    scans = _scans(packed)
    statement = ROTATION.sweep(packed, scans) if on_all else SQL.scan(packed, scans[1])
    worker.run("BEGIN")
    for number in range(3):
        worker.run(*_first(statement, number))
    cursor, parameters = _first(statement, 3)
    plan = _plan(worker, cursor[cursor.index("SELECT") :], parameters)
    worker.run("ROLLBACK")
    _check_one_stage(plan)
    assert any("Gather Motion" in line for line in plan), plan


@pytest.mark.parametrize("on_all", [False, True])
def test_states_are_not_compressed_for_a_scan(
    worker: Session, packed: PackedTable, on_all: bool
) -> None:
    worker.run(
        "INSERT INTO public.states (segment_key, mst_key, version, chunk, state) "
        "SELECT 1, g, 3, 0, convert_to(repeat('0', 100000), 'UTF8') FROM generate_series(1, 2) g"
    )
    scans = _scans(packed)
    statement = ROTATION.sweep(packed, scans) if on_all else SQL.scan(packed, scans[1])
    worker.run("BEGIN")
    for number in range(3):
        worker.run(*_first(statement, number))
    sizes = worker.run("SELECT pg_column_size(state) FROM pg_temp.cerebro_scan")
    worker.run("ROLLBACK")
    assert sizes == [(100000,)] * 2 * (len(scans) if on_all else 1)


def test_models_are_made_where_their_states_are(worker: Session, planner: str) -> None:
    output = QualifiedName("public", "made")
    worker.run("BEGIN")
    for statement in model_tables(output, SQL.together("mst_key")):
        worker.run(statement)
    worker.run("INSERT INTO public.made_states SELECT g, 0, 'x' FROM generate_series(1, 9) g")
    plan = _plan(worker, models_from_states(output), [["{}"], [1, 2], [1, 1]])
    worker.run("ROLLBACK")
    assert any("made_states" in line for line in plan), plan
    assert not any("Motion" in line for line in plan), plan


def test_a_table_that_was_packed_elsewhere_is_refused(segments: Sql, worker: Session) -> None:
    segments.run("CREATE TABLE moved AS SELECT * FROM packed DISTRIBUTED RANDOMLY")
    segments.run("ALTER TABLE moved DROP COLUMN segment_key")
    segments.run("CREATE TABLE moved_summary AS SELECT * FROM packed_summary DISTRIBUTED RANDOMLY")
    try:
        found = load_packed(worker, "public.moved", "source_table")
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
