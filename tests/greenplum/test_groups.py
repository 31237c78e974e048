"""Strategies whose trainers work together, where each partition is the rows of one segment."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from conftest import Sql
from tests.fitting.conftest import ADAM, select
from tests.greenplum.test_fitting import TABLES, _weights, make_tables

pytestmark = pytest.mark.slow

OPTIONS = "validation_table := 'val', metrics_compute_frequency := 1"
LARGE = "UPDATE models SET model_facts = %s WHERE model_id = %s"


def make_large(sql: Sql) -> None:
    """Small nets of which the catalog of models says that a step takes long: they are worth a group."""
    for model_id, facts in sql.fetch("SELECT model_id, model_facts FROM models"):
        sql.run(LARGE, (json.dumps(facts | {"multiply_adds": 10**9}), model_id))
    select(sql, "large", [1], [ADAM, ADAM.replace("0.01", "0.003")], ["batch_size=8"])


@pytest.fixture(scope="module")
def both(
    segments_dsn: str, blobs: Any, request: pytest.FixtureRequest
) -> Iterator[tuple[Sql, Callable[[Sql], None]]]:
    """A connection to tables on segments, and what makes those of a plain server have the same bytes."""
    from servers import connected

    connection = connected(segments_dsn)
    sql = Sql(connection, segments_dsn)
    ends = ("", "_info", "_summary", "_states", "_history")
    names = ", ".join(f"{name}{end}" for name in (*TABLES, "large") for end in ends)
    drop = f"DROP TABLE IF EXISTS blobs, {names} CASCADE"
    sql.run(drop)
    make_tables(sql, blobs, "")
    make_large(sql)

    def same(plain: Sql) -> None:
        partitions = sql.value("SELECT count(DISTINCT partition_key) FROM packed")
        make_tables(plain, blobs, f", num_partitions := {partitions}")
        make_large(plain)
        for table in ("packed", "val"):
            for row in sql.fetch(f"SELECT x, label, partition_key, buffer_id FROM {table}"):
                plain.run(
                    f"UPDATE {table} SET x = %s, label = %s "
                    "WHERE partition_key = %s AND buffer_id = %s",
                    row,
                )

    yield sql, same
    sql.run(drop)
    connection.close()


def fit(sql: Sql, more: str, epochs: int = 3, out: str = "out") -> int:
    sql.run(f"DROP TABLE IF EXISTS {out}, {out}_info, {out}_summary, {out}_states, {out}_history")
    call = f"SELECT cerebro_fit_multiple('packed', '{out}', 'large', {epochs}, {more}, {OPTIONS})"
    return int(sql.value(call))


def test_groups_on_segments_equal_those_of_a_server_without(
    both: tuple[Sql, Callable[[Sql], None]], database: str, connect: Callable[[str], Sql]
) -> None:
    sql, same = both
    plain = connect(database)
    same(plain)
    partitions = sql.value("SELECT count(DISTINCT partition_key) FROM packed")
    params = f"strategy := 'auto', strategy_params := 'processors={partitions}'"
    ids = [fit(one, params) for one in (sql, plain)]
    assert _weights(sql, "out") == _weights(plain, "out")
    measured = "SELECT mst_key, epoch, dataset, loss FROM cerebro.metrics WHERE run_id = %s ORDER BY 1, 2, 3"
    assert sql.fetch(measured, (ids[0],)) == plain.fetch(measured, (ids[1],))
    hops = (
        "SELECT mst_key, epoch, position, partition_key, rows, loss FROM cerebro.hops "
        "WHERE run_id = %s ORDER BY 1, 2, 3"
    )
    assert sql.fetch(hops, (ids[0],)) == plain.fetch(hops, (ids[1],))
    sizes = "SELECT DISTINCT group_size FROM cerebro._plan WHERE run_id = %s"
    assert sql.column(sizes, (ids[0],)) == [partitions if partitions % 2 else 2]
    reason = sql.value("SELECT strategy_reason FROM cerebro.progress WHERE run_id = %s", (ids[0],))
    assert "workers together for configurations 1, 2" in reason
    # And from there on: each segment of the first round has the states.
    for one in (sql, plain):
        one.run(
            f"SELECT cerebro_fit_multiple('packed', 'out', 'large', 1, {params}, warm_start := true)"
        )
    assert _weights(sql, "out") == _weights(plain, "out")


@pytest.mark.parametrize("strategy", ["averaging", "allreduce", "pipe"])
def test_strategies_on_segments_stop_and_go_on(
    both: tuple[Sql, Callable[[Sql], None]], strategy: str
) -> None:
    sql, _ = both
    fit(sql, f"strategy := '{strategy}'")
    calm = _weights(sql, "out")
    run_id = fit(sql, f"strategy := '{strategy}', max_seconds := 0.5", out="again")
    assert sql.value("SELECT status FROM cerebro.runs WHERE run_id = %s", (run_id,)) == "paused"
    sql.run("SELECT cerebro_resume(%s)", (run_id,))
    assert _weights(sql, "again") == calm
