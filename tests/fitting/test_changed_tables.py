"""A packed table that is not as its summary tells is refused before any work, whoever reads it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import psycopg2
import pytest
from pace import stretched

from tests.fitting.sizes import PARTITIONS, ROWS_EACH

LAST = PARTITIONS - 1
BUFFERS = ROWS_EACH // 10  # each of 10 rows
ALL = f"{ROWS_EACH} rows in {BUFFERS}"
CHANGES = {
    "a buffer that is gone": (
        "DELETE FROM {} WHERE partition_key = 1 AND buffer_id = 2",
        rf"has, in partition 1, {ROWS_EACH - 10} rows in {BUFFERS - 1} buffers; allowed: {ALL}, as public\.",
    ),
    "a partition that is gone": (
        f"DELETE FROM {{}} WHERE partition_key = {LAST}",
        f"has, in partition {LAST}, 0 rows in 0 buffers; allowed: {ALL}",
    ),
    "all of it": ("DELETE FROM {}", f"has, in partition 0, 0 rows in 0 buffers; allowed: {ALL}"),
    "a partition too many": (
        f"UPDATE {{}} SET partition_key = {PARTITIONS} WHERE partition_key = {LAST}",
        f"has, in partition {LAST}, 0 rows in 0 buffers",
    ),
    "a buffer twice": (
        f"INSERT INTO {{0}} SELECT * FROM {{0}} WHERE partition_key = {LAST} AND buffer_id = 0",
        f"has, in partition {LAST}, buffer 0, twice; allowed: each buffer once",
    ),
    "rows that are not there": (
        "UPDATE {} SET num_rows = 12 WHERE partition_key = 1 AND buffer_id = 0",
        r"has, in partition 1, buffer 0, num_rows 12 with x of shape \[10, 6\] in 240 bytes; "
        r"allowed: shape \[12, 6\] in 288 bytes",
    ),
    "rows that are counted nowhere": (
        "UPDATE {} SET num_rows = 5 WHERE partition_key = 1 AND buffer_id = 0",
        r"num_rows 5 with x of shape \[10, 6\]",
    ),
    "another shape": (
        "UPDATE {} SET x_shape = '{{10,3}}' WHERE partition_key = 0 AND buffer_id = 1",
        r"buffer 1, num_rows 10 with x of shape \[10, 3\] in 240 bytes; allowed: shape \[10, 6\]",
    ),
    "more dimensions": (
        "UPDATE {} SET x_shape = '{{10,6,1}}' WHERE partition_key = 0 AND buffer_id = 1",
        r"x of shape \[10, 6, 1\]",
    ),
    "bytes that are cut off": (
        "UPDATE {} SET x = substr(x, 1, 236) WHERE partition_key = 0 AND buffer_id = 1",
        r"x of shape \[10, 6\] in 236 bytes; allowed: shape \[10, 6\] in 240 bytes",
    ),
    "targets that are cut off": (
        "UPDATE {} SET label = substr(label, 5) WHERE partition_key = 0 AND buffer_id = 1",
        r"label of shape \[10\] in 36 bytes; allowed: shape \[10\] in 40 bytes",
    ),
    "fewer rows, each of them right": (
        "UPDATE {} SET num_rows = 9, x_shape = '{{9,6}}', x = substr(x, 1, 216), label_shape = '{{9}}', "
        "label = substr(label, 1, 36) WHERE partition_key = 0 AND buffer_id = 1",
        f"has, in partition 0, {ROWS_EACH - 1} rows in {BUFFERS} buffers; allowed: {ALL}",
    ),
}


@pytest.fixture
def copied(bench: Any) -> Iterator[Callable[[str], str]]:
    """Copies of a packed table and its summary that may be changed."""

    def copy(change: str) -> str:
        bench.run("CREATE TABLE changed AS TABLE packed")
        bench.run("CREATE TABLE changed_summary AS TABLE packed_summary")
        bench.run(change.format("changed"))
        return "changed"

    yield copy
    bench.run("DROP TABLE IF EXISTS changed, changed_summary")


@pytest.fixture(scope="module")
def trained(bench: Any) -> str:
    """A table of models."""
    bench.run(
        "SELECT cerebro_fit_multiple('packed', 'changed_models', 'configs', 1, num_workers := 1)"
    )
    return "changed_models"


@pytest.mark.parametrize("what", CHANGES)
def test_no_run_begins(
    bench: Any, fit: Callable[..., Any], copied: Callable[[str], str], what: str
) -> None:
    change, message = CHANGES[what]
    runs = bench.value("SELECT count(*) FROM cerebro.runs")
    with pytest.raises(psycopg2.errors.DataException, match=f"source_table: .*{message}") as caught:
        fit(packed=copied(change))
    assert caught.value.diag.message_hint == "the packed table was changed; pack its source again"
    assert bench.value("SELECT count(*) FROM cerebro.runs") == runs


@pytest.mark.parametrize(
    ("call", "role"),
    [
        ("cerebro_fit_multiple('packed', 'o', 'configs', 1, validation_table := 'changed')", "validation_table"),
        ("cerebro_fit_multiple('changed', 'changed_models', 'configs', 1, warm_start := true)", "source_table"),
        ("cerebro_evaluate('changed_models', 'changed', 'o')", "test_table"),
        ("cerebro_confusion_matrix('changed_models', 'changed', 'o', mst_key := 1)", "test_table"),
        ("cerebro_predict('changed_models', 'changed', NULL, NULL, 'o', mst_key := 1)", "test_table"),
        ("cerebro_pack_validation('blobs_test', 'o', 'label', 'x', 'changed')", "training_table"),
    ],
)  # fmt: skip
def test_whoever_reads_it_is_reported(
    bench: Any, trained: str, copied: Callable[[str], str], call: str, role: str
) -> None:
    change, message = CHANGES["a buffer that is gone"]
    copied(change)
    with pytest.raises(psycopg2.errors.DataException, match=f"{role}: .*{message}"):
        bench.run(f"SELECT {call}")
    assert bench.value("SELECT to_regclass('o')") is None


def test_a_run_does_not_go_on_with_less(bench: Any, fit: Callable[..., Any], copied: Any) -> None:
    copied("SELECT 1")
    _, run_id = fit(packed="changed", max_seconds=0.001)
    assert bench.value("SELECT status FROM cerebro.runs WHERE run_id = %s", (run_id,)) == "paused"
    change, message = CHANGES["a buffer that is gone"]
    bench.run(change.format("changed"))
    with pytest.raises(psycopg2.errors.DataException, match=message):
        bench.run("SELECT cerebro_resume(%s)", (run_id,))


@pytest.mark.parametrize(
    ("other", "error", "message"),
    [
        ("reltoastrelid", psycopg2.errors.UndefinedTable, "source_table: the packed table that the run began with is not"),
        ("'blobs'::regclass", psycopg2.errors.UndefinedTable, r"source_table: .*blobs is not packed"),
        ("'packed'::regclass", psycopg2.errors.DataException, r"source_table: .*packed has been changed since"),
    ],
    ids=["no table", "not packed", "packed"],
)  # fmt: skip
def test_a_run_whose_number_of_a_table_leads_elsewhere_is_refused(
    bench: Any,
    fit: Callable[..., Any],
    copied: Any,
    other: str,
    error: type[Exception],
    message: str,
) -> None:
    copied("SELECT 1")
    _, run_id = fit(packed="changed", max_seconds=0.001)
    bench.run(
        f"UPDATE cerebro.catalog_runs SET source_oid = (SELECT {other} FROM pg_class "
        f"WHERE oid = 'changed'::regclass) WHERE run_id = {run_id}"
    )
    with pytest.raises(error, match=message) as caught:
        bench.run("SELECT cerebro_resume(%s)", (run_id,))
    assert "start a new run" in caught.value.diag.message_hint
    bench.run("SELECT cerebro_drop_run(%s)", (run_id,))


def test_thousands_of_buffers_take_no_time(bench: Any, copied: Any) -> None:
    """Their bytes are not read: those of a large table would take minutes."""
    bench.run(
        "CREATE TABLE many AS SELECT i, ARRAY[i, 1, 2, 3, 4, 5]::real[] AS x, i % 3 AS y FROM generate_series(1, 8000) i"
    )
    bench.run(
        "SELECT cerebro_pack('many', 'many_packed', 'y', 'x', buffer_size := 2, num_partitions := 2)"
    )
    assert bench.value("SELECT count(*) FROM many_packed") == 4000
    began = time.monotonic()
    with pytest.raises(psycopg2.Error, match="nowhere"):
        bench.run("SELECT cerebro_fit_multiple('many_packed', 'o', 'nowhere', 1)")
    assert time.monotonic() - began < stretched(2)
    bench.run("DROP TABLE many, many_packed, many_packed_summary")
