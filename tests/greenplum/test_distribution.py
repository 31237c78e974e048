"""distribution_rules: which segments a packed table lies on; and the GPUs of hosts."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg2
import pytest

from conftest import Sql

PACK = "SELECT cerebro_pack('spread', 'lying', 'y', 'x', 100, distribution_rules := %s)"
LIES = (
    "SELECT gp_segment_id, count(*)::int, sum(num_rows)::int FROM {} "
    "GROUP BY gp_segment_id, partition_key ORDER BY partition_key"
)
RECORDED = "SELECT distribution_rules, __internal_gpu_config__ FROM {}_summary"
FAKE = (
    "CREATE OR REPLACE FUNCTION cerebro._gpus(source text) RETURNS text[] LANGUAGE plpgsql AS "
    "$$BEGIN RETURN ARRAY[source || ' 0', source || ' 1']; END$$"
)


@pytest.fixture
def source(segments: Sql) -> Iterator[Sql]:
    segments.run(
        "CREATE TABLE spread AS SELECT g AS id, ARRAY[g, g * 2]::float8[] AS x, g % 2 AS y "
        "FROM generate_series(1, 1001) g DISTRIBUTED BY (id)"
    )
    segments.run("CREATE TABLE rules (dbid int, hostname text) DISTRIBUTED BY (dbid)")
    yield segments
    segments.run(
        "DROP TABLE IF EXISTS spread, rules, wrong, lying, lying_summary, lying_encoding, val, val_summary"
    )


@pytest.fixture
def chosen(source: Sql) -> list[tuple[int, int]]:
    """Number and dbid of the first and the last segment, which ``rules`` names."""
    found = source.fetch(
        "SELECT content, dbid::int FROM gp_segment_configuration "
        "WHERE role = 'p' AND content >= 0 ORDER BY content"
    )
    ends = [found[0], found[-1]]
    for _, dbid in reversed(ends):
        source.run("INSERT INTO rules VALUES (%s, 'any')", (dbid,))
    return ends


def test_a_table_chooses_segments(source: Sql, chosen: list[tuple[int, int]]) -> None:
    source.run(PACK, ("rules",))
    rows = source.fetch(LIES.format("lying"))
    assert [segment for segment, _, _ in rows] == [segment for segment, _ in chosen]
    # A row more here and a buffer more there, at most.
    assert sorted(count for _, _, count in rows) == [500, 501]
    assert max(n for _, n, _ in rows) - min(n for _, n, _ in rows) <= 1
    recorded = ([dbid for _, dbid in chosen], [segment for segment, _ in chosen])
    assert source.row(RECORDED.format("lying")) == recorded
    validate = "SELECT cerebro_pack_validation('spread', 'val', 'y', 'x', 'lying'{})"
    source.run(validate.format(""))
    assert [row[0] for row in source.fetch(LIES.format("val"))] == [key for key, _ in chosen]
    assert source.row(RECORDED.format("val")) == recorded
    source.run("DROP TABLE val, val_summary")
    source.run(validate.format(", NULL, 'all_segments'"))
    count = source.value("SELECT count(*) FROM gp_segment_configuration WHERE content >= 0")
    assert [row[0] for row in source.fetch(LIES.format("val"))] == list(range(count))
    assert source.row(RECORDED.format("val")) == ("all_segments", "all_segments")


def test_fewer_partitions_than_chosen_segments(source: Sql, chosen: list[tuple[int, int]]) -> None:
    pack = "SELECT cerebro_pack('spread', 'lying', 'y', 'x', 100, 1, NULL, 'RULES', {})"
    with pytest.raises(psycopg2.Error, match="num_partitions: got 3; allowed: at most 2"):
        source.run(pack.format(3))
    source.run(pack.format(1))
    assert source.fetch(LIES.format("lying")) == [(chosen[0][0], 11, 1001)]


def test_columns_are_packed_there_too(source: Sql, chosen: list[tuple[int, int]]) -> None:
    source.run(
        "SELECT cerebro_pack_columns('spread', 'lying', 'y', 'id', distribution_rules := 'rules')"
    )
    assert [row[0] for row in source.fetch(LIES.format("lying"))] == [key for key, _ in chosen]


@pytest.mark.parametrize(
    ("before", "rule", "sqlstate", "message"),
    [
        ("", "nowhere", "42P01", "got 'nowhere'; allowed: 'all_segments', 'gpu_segments' or"),
        ("", "gpu_segment", "42P01", "Did you mean 'gpu_segments'"),
        ("", "", "22023", "got ''; allowed"),
        ("", "spread", "42703", "public.spread has no column dbid; its columns are: id, x, y"),
        ("", "rules", "22023", "public.rules has no rows; allowed: those of primary segments, 2,"),
        ("INSERT INTO rules VALUES (1)", "rules", "22023", "dbid 1, which is the coordinator"),
        ("INSERT INTO rules VALUES (2), (999)", "rules", "22023", "has the dbid 999; allowed"),
        ("INSERT INTO rules VALUES (2), (NULL)", "rules", "22023", "has the dbid NULL; allowed"),
        ("INSERT INTO rules VALUES (2), (2)", "rules", "22023", "the dbid 2 2 times; allowed"),
        ("CREATE TABLE wrong AS SELECT 'a'::text AS dbid", "wrong", "42809", "of type text"),
        ("", "gpu_segments", "22023", "there is no GPU on"),
    ],
)
def test_bad_rules(source: Sql, before: str, rule: str, sqlstate: str, message: str) -> None:
    if before:
        source.run(before)
    with pytest.raises(psycopg2.Error, match=message) as failure:
        source.run(PACK, (rule,))
    assert failure.value.pgcode == sqlstate
    assert source.fetch("SELECT relname FROM pg_class WHERE relname LIKE 'lying%'") == []


@pytest.fixture
def gpus(source: Sql) -> Iterator[Sql]:
    """All hosts tell that they have two GPUs."""
    body = source.value(
        "SELECT pg_get_functiondef(p.oid) FROM pg_proc p "
        "JOIN pg_namespace n ON n.oid = p.pronamespace "
        "WHERE n.nspname = 'cerebro' AND p.proname = '_gpus'"
    )
    source.run(FAKE)
    yield source
    source.run(body)
    source.run("DROP TABLE IF EXISTS gpus")


def test_segments_of_hosts_with_gpus(gpus: Sql) -> None:
    gpus.run(PACK, ("GPU_segments",))
    dbids, segments = gpus.row(RECORDED.format("lying"))
    assert len(dbids) == len(segments) == len(gpus.fetch(LIES.format("lying")))


def test_each_host_tells_its_gpus_once(gpus: Sql) -> None:
    hosts = gpus.column("SELECT DISTINCT hostname FROM gp_segment_configuration")
    gpus.run("SELECT cerebro_gpu_configuration('gpus', 'nvidia')")
    rows = gpus.fetch("SELECT hostname, gpu_descr FROM gpus ORDER BY 1, 2")
    assert rows == [(host, f"nvidia {n}") for host in sorted(hosts) for n in (0, 1)]


def test_hosts_without_gpus_are_left_out(source: Sql) -> None:
    source.run("SELECT cerebro_gpu_configuration('gpus')")
    try:
        assert source.fetch("SELECT * FROM gpus") == []
    finally:
        source.run("DROP TABLE gpus")
