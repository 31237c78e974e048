"""Statements of a worker that computes on one segment, whatever segment the rows are from."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from cerebro_db.decide.strategies.hopper import Hopper
from cerebro_db.decide.strategies.task import WholeTask
from cerebro_db.postgres.dialects.choice import dialect_of
from cerebro_db.postgres.dialects.statements.orders import HopOrder, ScanOrder
from cerebro_db.postgres.names import QualifiedName
from cerebro_db.postgres.tables.buffers import PartitionInfo
from cerebro_db.postgres.tables.packed import PackedTable
from cerebro_db.runs.setup import workers_of

PLAIN, SEGMENTS = (
    dialect_of(150000, "postgresql").training,
    dialect_of(90426, "greenplum6").training,
)
STATES = QualifiedName("cerebro_states", "run_x_1")
PARTITIONS = tuple(PartitionInfo(key, 40, ((0, 40),), 70 + key) for key in range(3))
PACKED = cast(
    PackedTable,
    SimpleNamespace(
        relation=SimpleNamespace(name=QualifiedName("public", "packed"), kind="r", oid=4711),
        partitions=PARTITIONS,
        inputs=[SimpleNamespace(name="x")],
        targets=[SimpleNamespace(name="y")],
    ),
)


def hop(**changes: Any) -> HopOrder:
    """A hop of the partition whose rows are on the segment of key 71."""
    fields: dict[str, Any] = dict(
        source=STATES, target=STATES, run_id=1, mst_key=5, epoch=1, position=1, partition_key=1,
        version=1, makes=2, next_partition_key=0, task="{}", salt="s", passes=2,
        reads=True, weights_of=None, preparation="{}",
    )  # fmt: skip
    return HopOrder(**fields | changes)


def scan(**changes: Any) -> ScanOrder:
    """A scan of the same partition."""
    return ScanOrder([STATES], 1, "{}", [5], [3], ["{}"], True, "{}", **changes)


def test_only_workers_of_whole_tasks_serve_partitions_of_other_segments() -> None:
    assert [workers_of(SEGMENTS, one, 2).bound for one in (Hopper(), WholeTask())] == [True, False]
    assert [workers_of(PLAIN, one, 2).bound for one in (Hopper(), WholeTask())] == [False, False]


@pytest.mark.parametrize("reads", [True, False])
@pytest.mark.parametrize("home", [None, PARTITIONS[2]])
def test_a_hop_reads_the_state_and_leaves_it_where_its_worker_is(
    reads: bool, home: PartitionInfo | None
) -> None:
    sql, parameters = SEGMENTS.hop(PACKED, hop(home=home, reads=reads))
    assert sql.count("%s") == len(parameters)
    # Of the state afterwards: where it goes, whose it is, its version.
    assert parameters[:3] == [72 if home else 70, 5, 2]
    # The state before may lie anywhere, as another worker may have left it.
    assert ("s.segment_key = 71" in sql) == (home is None)
    # The process that trains is made ready, and not the one that sends rows.
    assert ("cerebro_train(i.kind, i.task," in sql) == (home is None)
    assert sql.count("72::integer AS segment_key") == ((3 + reads) if home else 0)
    # Rows of another table that has taken the name are not read.
    assert ("p.tableoid = %s::oid" in sql, 4711 in parameters) == (reads, reads)


def test_states_of_a_scan_go_where_its_worker_is() -> None:
    for home, there in ((None, 71), (PARTITIONS[2], 72)):
        sql, parameters = SEGMENTS.scan(PACKED, scan(home=home))
        assert sql.count("%s") == len(parameters)
        assert parameters[0] == there
