"""Orders of direct workers, and how their values travel, without a database."""

from __future__ import annotations

import hashlib
import json
import struct
from typing import Any

import pytest
from run_states import do, finish, planned, run_state, view

from cerebro_db.core import events
from cerebro_db.core.run_spec import Workers
from cerebro_db.core.spec import TRAINING, Hop
from cerebro_db.core.tasks import Train, WorkerView
from cerebro_db.errors import InvalidArgument
from cerebro_db.executors.direct_order import Order
from cerebro_db.postgres.dialects.statements.direct import DirectStatements
from cerebro_db.postgres.dialects.statements.training import TrainingStatements
from cerebro_db.postgres.direct.session import DirectRun
from cerebro_db.postgres.sessions import binary

RUN = DirectRun(7, "ann", "running", "hopper", f"run_{'0' * 32}", 1, {})
TASK = json.dumps({"buffers": {"ids": [3, 0, 1, 2], "rows": [10, 10, 10, 5]}})
GIVEN = {
    "run_id": 7, "mst_key": 1, "epoch": 2, "position": 0, "partition_key": 3, "worker": 1, "version": 4,
    "makes": 5, "segment_key": None, "goals": [[None, None]], "waited": 0.5, "task": TASK, "salt": "s", "passes": 2,
    "weights_of": None, "source": f"{RUN.states}_1", "target": f"{RUN.states}_2",
    "packed": {"schema": "s", "name": 'a"b'}, "oid": 2**31, "inputs": ["x"], "targets": ["y"], "row_bytes": 2**20, "rows": 35,
}  # fmt: skip


def order(**changed: Any) -> Order:
    """An order with other values."""
    return Order.parse(json.dumps(GIVEN | changed), RUN)


def test_buffers_come_in_the_order_of_the_statement_of_a_hop() -> None:
    ids = sorted(range(4), key=lambda one: hashlib.md5(f"s/0/{one}".encode()).hexdigest())
    read = list(order().batches(cache_bytes=2**40))
    assert [one for _, batch in read for one in batch] == ids
    assert len(read) > 1  # not more than 16 MB at a time
    assert [number for number, _ in order().batches(cache_bytes=0)] == [0] * len(read) + [1] * len(
        read
    )
    unshuffled = [one for _, batch in order(salt=None).batches(2**40) for one in batch]
    assert unshuffled == [0, 1, 2, 3]


@pytest.mark.parametrize(
    "changed",
    [
        {"run_id": 8},
        {"target": "pg_authid"},
        {"source": f"{RUN.states}x"},
        {"packed": "s.t"},
        {"oid": "1"},
        {"inputs": []},
        {"mst_key": "1"},
        {"salt": 1},
        {"segment_key": "1"},
        {"goals": []},
        {"goals": [[1]]},
        {"goals": [["1", None]]},
    ],
)
def test_an_order_is_values_of_its_run(changed: dict[str, Any]) -> None:
    assert order().packed.sql == '"s"."a""b"'
    with pytest.raises(InvalidArgument):
        order(**changed)


def test_buffers_of_another_table_of_the_name_are_not_read() -> None:
    one = order()
    sql, parameters = DirectStatements(TrainingStatements()).buffers(
        one.packed, one.columns, 3, [0, 1], None, one.oid
    )
    assert sql.endswith("AND p.tableoid = %s::oid")
    assert parameters == [3, [0, 1], 2**31]
    assert order(oid=None).oid is None


def test_values_travel_as_they_are() -> None:
    rows = [(1, None, b""), (-2, b"\x00\xff" * 100, b"x")]
    data = b"".join(binary.parts(rows))
    read = [[binary.integer(row[0]), *row[1:]] for row in binary.rows(data)]
    assert read == [list(row) for row in rows]
    reader, found = binary.Reader(binary.parts(rows)), b""
    while piece := reader.read(7):
        found += piece
    assert found == data
    with pytest.raises(ValueError, match="binary format"):
        list(binary.rows(b"something else, as long as a head"))


def test_arrays_of_one_dimension_are_read() -> None:
    array = struct.pack("!iIIii", 1, 0, 23, 2, 1) + struct.pack("!iiii", 4, 5, 4, -6)
    assert binary.integers(array) == [5, -6]
    assert binary.integers(struct.pack("!iII", 0, 0, 23)) == []
    assert binary.integers(None) is None
    with pytest.raises(ValueError, match="several dimensions"):
        binary.integers(struct.pack("!iII", 2, 0, 23))


def test_a_direct_worker_gets_hops_and_none_that_somebody_has_failed_at() -> None:
    direct = WorkerView(5, only_hops=True)
    hops = [Hop(key, 1, 0, 0) for key in (1, 2)]
    state = planned(run_state({1: 1.0, 2: 1.0}, partitions=(0,), frequency=1, epochs=1), hops)
    strategy = state.spec.strategy
    task = strategy.next(state, direct, 0.0)
    assert isinstance(task, Train)
    state.apply(events.Submitted(5, task))
    state.apply(events.Returned(5))
    state.apply(events.Separated(task.hops))
    other = strategy.next(state, direct, 0.0)
    assert isinstance(other, Train)
    assert other != task
    assert strategy.next(state, view(0), 0.0) == task
    do(state, *other.hops)
    assert strategy.next(state, direct, 0.0) is None
    state.apply(events.Submitted(0, task))
    finish(state, *task.hops)
    assert strategy.next(state, direct, 99.0) is None  # a scan is for others
    assert strategy.next(state, view(0), 99.0) is not None


@pytest.mark.parametrize("strategy", ["hopper", "averaging"])
def test_a_direct_worker_has_partitions_of_others_and_one_hop_at_a_time(strategy: str) -> None:
    """Where each partition belongs to a session, whose short hops are made together."""
    workers = Workers(2, bound=True, most_hops=16)
    state = run_state(dict.fromkeys(range(1, 5), 1.0), workers=workers, strategy=strategy)
    hops = [Hop(key, 1, place, 1 - place) for key in range(1, 5) for place in (0, 1)]
    planned(state, hops)
    for hop in hops[::2]:
        do(state, hop, seconds=0.001)
    chosen = state.spec.strategy
    direct, bound = WorkerView(2, {(TRAINING, 0)}, only_hops=True), view(0, 0)
    of_session = chosen.next(state, bound, 0.0)
    assert isinstance(of_session, Train)
    assert {hop.partition_key for hop in of_session.hops} == {0}
    assert len(of_session.hops) == (2 if strategy == "hopper" else 1)
    assert chosen.next(state, view(1), 0.0) is None
    one = chosen.next(state, direct, 0.0)
    assert isinstance(one, Train)
    assert one.hops == of_session.hops[:1]
