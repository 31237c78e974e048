"""What the statements of every registered dialect keep: parameters, columns, places of states."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

import pytest

from cerebro_db.postgres.dialects.choice import DIALECTS, PostgreSQL, dialect_of
from cerebro_db.postgres.dialects.segments.packing import SegmentPacking
from cerebro_db.postgres.dialects.segments.prediction import SegmentPrediction
from cerebro_db.postgres.dialects.segments.training import SegmentTraining
from cerebro_db.postgres.dialects.statements.orders import (
    AverageOrder,
    HopOrder,
    ScanOrder,
    Statement,
)
from cerebro_db.postgres.names import QualifiedName
from cerebro_db.postgres.tables.buffers import PartitionInfo
from cerebro_db.postgres.tables.packed import PackedInput, PackedTable, PackedTarget
from cerebro_db.postgres.tables.relations import Relation

SOURCE, TARGET = QualifiedName("cerebro_states", "run_1"), QualifiedName("cerebro_states", "run_2")
VERSION = 150000


@pytest.fixture(params=DIALECTS)
def dialect(request: pytest.FixtureRequest) -> PostgreSQL:
    return dialect_of(VERSION, request.param)


@pytest.fixture
def packed(dialect: PostgreSQL) -> PackedTable:
    """Two inputs, and a name that has to be quoted; on segments each partition lies on one of its own."""
    is_spread = dialect.has_segments
    partitions = tuple(
        PartitionInfo(key, 10, ((0, 5), (1, 5)), 7 * key if is_spread else None) for key in range(3)
    )
    return PackedTable(
        relation=Relation(QualifiedName("a b", "pack%ed"), 77, "r", ()),
        summary=QualifiedName("a b", "pack%ed_summary"),
        inputs=tuple(PackedInput(name, (4,), "float32", "real[]") for name in ("x", "x 2")),
        targets=(
            PackedTarget("y", "class", (), "int32", "text", "S", 2, 2, ("a", "b"), "{a,b}", "text"),
        ),
        normalizing_const=1.0,
        buffer_size=5,
        partitions=partitions,
    )


@pytest.fixture
def order() -> HopOrder:
    return HopOrder(
        source=SOURCE,
        target=TARGET,
        run_id=5,
        mst_key=2,
        epoch=1,
        position=1,
        partition_key=1,
        version=1,
        makes=2,
        next_partition_key=2,
        task="{}",
        salt="s",
        passes=2,
        reads=True,
        weights_of=None,
        preparation="{}",
    )


def statements(dialect: PostgreSQL, packed: PackedTable, order: HopOrder) -> Iterator[Statement]:
    """Each statement of training, in the forms that it has."""
    training, direct = dialect.training, dialect.direct
    scan = ScanOrder([SOURCE], 1, "{}", [1, 2], [3, 3], ["a", "b"], True, "{}")
    orders = [
        order,
        replace(order, source=None, weights_of=9),
        replace(order, reads=False, salt=None),
        replace(order, next_partition_key=None),
        *([replace(order, others=(0,))] if dialect.has_segments else []),
    ]
    for one in orders:
        yield training.hop(packed, one)
        yield training.share(packed, one)
        yield training.hops(packed, [one])
    several = [
        replace(order, mst_key=key, reads=False, salt=None) for key in range(training.most_hops)
    ]
    yield training.hops(packed, several)
    yield training.average(packed, AverageOrder([SOURCE], TARGET, 3, [1, 2], [0.5, 0.5], 4, 1, [0]))
    for one_scan in (scan, replace(scan, versions=None), replace(scan, reads=False)):
        yield training.scan(packed, one_scan)
    yield training.tables("run_x")
    yield training.unrecorded(5, SOURCE, 3)
    yield training.move(SOURCE, TARGET, [(1, 2)])
    yield training.delete_from(SOURCE, 1, 2)
    yield training.begin_states(TARGET, SOURCE, packed, {1: 0}, 3, {1: [2]})
    yield training.clone_state(SOURCE, TARGET, (1, 2), 3, packed, 1)
    yield training.call(packed, [0, 1], "f(%s)", ["{}"])
    yield training.neighbours(packed)
    segment_key = training.segment_of(packed, 1)
    yield direct.state(SOURCE, 1, 2, segment_key)
    columns = {name: name for name in ("x", "x_shape", "y", "y_shape")}
    yield direct.buffers(packed.relation.name, columns, 1, [0, 1], segment_key, 77)
    if dialect.rotation is not None:
        yield dialect.rotation.step(packed, [order, replace(order, mst_key=3, partition_key=0)])
        yield dialect.rotation.sweep(packed, [scan, replace(scan, partition_key=0)])


def test_each_place_in_a_statement_has_its_parameter(
    dialect: PostgreSQL, packed: PackedTable, order: HopOrder
) -> None:
    for sql, parameters in statements(dialect, packed, order):
        text = sql.replace("%%", "")
        assert len(re.findall("%s", text)) == len(parameters), sql
        assert not re.search("%(?!s)", text), sql
        assert not re.search(r"\{\w+\}", sql), sql


def test_names_are_quoted(dialect: PostgreSQL, packed: PackedTable, order: HopOrder) -> None:
    texts = [sql for sql, _ in statements(dialect, packed, order) if "pack%" in sql]
    assert texts
    for text in texts:
        assert text.count('"a b"."pack%%ed"') == text.count("pack%")


def test_a_row_of_a_state_has_the_columns_of_its_table(
    dialect: PostgreSQL, packed: PackedTable, order: HopOrder
) -> None:
    """Of direct workers, which copy rows into the table that the dialect has made."""
    training, direct = dialect.training, dialect.direct
    columns = direct.state_columns.split(", ")
    created = training.create_states(TARGET, lasting=True)[0]
    made = re.findall(r"[(,] ?(\w+) (?:integer|bytea|text)", created)
    assert columns == made
    chunks = [(0, b"first", "{}"), (1, b"second", None)]
    rows = list(direct.state_rows(2, 2, training.goals(packed, order), chunks))
    assert [len(row) for row in rows] == [len(columns)] * len(chunks)
    first = dict(zip(columns, rows[0], strict=True))
    assert (first["mst_key"], first["version"], first["chunk"], first["partition_key"]) == (
        2, 2, 0, 2,
    )  # fmt: skip
    assert (first["state"], first["report"]) == (b"first", b"{}")


def test_a_state_lies_where_its_next_partition_does(
    dialect: PostgreSQL, packed: PackedTable, order: HopOrder
) -> None:
    training = dialect.training
    ((segment, following),) = training.goals(packed, order)
    assert (segment, following) == (training.segment_of(packed, 2), 2)
    ((segment, following),) = training.goals(packed, replace(order, next_partition_key=None))
    assert following is None
    assert segment == training.segment_of(packed, order.partition_key)


def test_only_the_first_goal_has_the_report(dialect: PostgreSQL) -> None:
    """Whoever reads reports of a crashed run finds each once."""
    segment = 7 if dialect.has_segments else None
    rows = list(dialect.direct.state_rows(1, 2, [(segment, 1), (segment, -1)], [(0, b"", "{}")]))
    assert [row[-1] for row in rows] == [b"{}", None]


def test_a_packed_table_is_made_with_the_columns_of_its_key(dialect: PostgreSQL) -> None:
    table = QualifiedName("a", "b")
    created = dialect.packing.create(table, ["x", "y"])
    for column in dialect.packing.primary_key().split(", "):
        assert f"{column} integer NOT NULL" in created
    together = dialect.training.together("id")
    assert ("segment_key" in created) == bool(together) == bool(dialect.anywhere)


def test_segments_are_declared_once(dialect: PostgreSQL) -> None:
    """Rooms of statements agree with the capability."""
    facts = (
        isinstance(dialect.packing, SegmentPacking),
        isinstance(dialect.prediction, SegmentPrediction),
        isinstance(dialect.training, SegmentTraining),
        dialect.packing.in_one_statement,
        dialect.training.binds_workers,
        dialect.hosts.servers is not None,
        bool(dialect.anywhere),
    )
    assert set(facts) == {dialect.has_segments}
