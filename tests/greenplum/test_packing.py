"""cerebro_pack where tables are spread over segments."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import psycopg2
import pytest

from conftest import Sql


@pytest.fixture
def source(segments: Sql) -> Iterator[Sql]:
    segments.run(
        "CREATE TABLE source AS SELECT g AS id, ARRAY[g, g * 2]::float8[] AS x, "
        "CASE WHEN g % 3 = 0 THEN 'cat' ELSE 'dog' END AS y "
        "FROM generate_series(1, 1000) g DISTRIBUTED BY (y)"
    )
    yield segments
    segments.run(
        "DROP VIEW IF EXISTS seen; "
        "DROP TABLE IF EXISTS source, packed, packed_summary, again, again_summary CASCADE"
    )


def _rows(sql: Sql, table: str) -> list[tuple[float, float, int]]:
    """The rows of a packed table in their order."""
    found = []
    for x, y in sql.fetch(f"SELECT x, y FROM {table} ORDER BY partition_key, buffer_id"):
        features = np.frombuffer(x, "<f4").reshape(-1, 2)
        labels = np.frombuffer(y, "<i4")
        found += [(float(a), float(b), int(c)) for (a, b), c in zip(features, labels, strict=True)]
    return found


def test_a_partition_is_exactly_the_rows_of_one_segment(source: Sql) -> None:
    source.run("SELECT cerebro_pack('source', 'packed', 'y', 'x', 100)")
    segments = source.fetch(
        "SELECT gp_segment_id, count(DISTINCT partition_key), count(DISTINCT segment_key), "
        "sum(num_rows)::int FROM packed GROUP BY 1 ORDER BY 1"
    )
    assert [row[:3] for row in segments] == [(n, 1, 1) for n in range(len(segments))]
    counts = [row[3] for row in segments]
    assert sum(counts) == 1000
    assert max(counts) - min(counts) <= 1


def test_every_row_is_packed_once_and_shuffled(source: Sql) -> None:
    source.run("SELECT cerebro_pack('source', 'packed', 'y', 'x', 100, seed := 7)")
    rows = _rows(source, "packed")
    wanted = [(float(g), float(2 * g), 0 if g % 3 == 0 else 1) for g in range(1, 1001)]
    assert sorted(rows) == wanted
    # The source lies on as many segments as it has classes; buffers must be mixed all the same.
    firsts = [label for _, _, label in rows[:80]]
    assert 5 < firsts.count(0) < 50


def test_the_seed_decides(source: Sql) -> None:
    source.run("SELECT cerebro_pack('source', 'packed', 'y', 'x', 100, seed := 7)")
    first = _rows(source, "packed")
    source.run("SELECT cerebro_pack('source', 'again', 'y', 'x', 100, seed := 7)")
    assert _rows(source, "again") == first
    source.run("DROP TABLE again, again_summary")
    source.run("SELECT cerebro_pack('source', 'again', 'y', 'x', 100, seed := 8)")
    assert _rows(source, "again") != first


def test_validation_keeps_the_order_and_the_classes(source: Sql) -> None:
    source.run("SELECT cerebro_pack('source', 'packed', 'y', 'x', 100)")
    source.run("CREATE VIEW seen AS SELECT * FROM source WHERE y = 'dog'")
    source.run("SELECT cerebro_pack_validation('seen', 'again', 'y', 'x', 'packed')")
    rows = _rows(source, "again")
    assert {label for _, _, label in rows} == {1}
    assert len(rows) == 667


def test_rows_of_a_replicated_table_are_packed_once(source: Sql) -> None:
    source.run("SELECT cerebro_pack('source', 'packed', 'y', 'x', 100)")
    source.run("ALTER TABLE source SET DISTRIBUTED REPLICATED")
    source.run("SELECT cerebro_pack('source', 'again', 'y', 'x', 100)")
    assert sorted(_rows(source, "again")) == sorted(_rows(source, "packed"))
    bad = "UPDATE source SET x = ARRAY[1, 'NaN']::float8[] WHERE id = 500"
    source.run(f"{bad}; DROP TABLE again, again_summary")
    with pytest.raises(psycopg2.Error, match=r"^a row of public\.source, y = 'dog': column 'x'"):
        source.run("SELECT cerebro_pack('source', 'again', 'y', 'x', 100)")


def test_fewer_partitions_than_segments(source: Sql) -> None:
    source.run("SELECT cerebro_pack('source', 'packed', 'y', 'x', num_partitions := 2)")
    assert source.column("SELECT DISTINCT partition_key FROM packed ORDER BY 1") == [0, 1]
    with pytest.raises(psycopg2.Error, match="num_partitions: got 99; allowed: at most"):
        source.run("SELECT cerebro_pack('source', 'again', 'y', 'x', num_partitions := 99)")


def test_a_bad_row_is_named_and_nothing_is_left(source: Sql) -> None:
    source.run("UPDATE source SET x = ARRAY[1, 'NaN']::float8[] WHERE id = 500")
    with pytest.raises(psycopg2.Error, match="column 'x' holds a value that is NaN") as failure:
        source.run("SELECT cerebro_pack('source', 'packed', 'y', 'x', 100)")
    assert str(failure.value.pgcode).startswith("22")
    assert source.fetch("SELECT relname FROM pg_class WHERE relname LIKE 'packed%'") == []
