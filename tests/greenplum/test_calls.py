"""Calls that are a part of a query on segments: what cannot be done there is refused, and hurts nobody."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg2.errors
import pytest

from conftest import Sql

_LOAD = "cerebro_load_model('called_{}', cerebro_mlp(4, ARRAY[8], 3))"
# The server's own error leaves a broken interpreter to the session, and its next call may end the server.
REFUSED = (
    "SELECT m FROM spread s, {} AS m",
    "SELECT n, {} FROM (SELECT count(*) AS n FROM spread) c",
    "DO $$BEGIN PERFORM m FROM spread s, {} AS m; END$$",
    "CREATE TABLE made AS SELECT m FROM {} AS m",
    "CREATE TABLE made AS SELECT m FROM spread s, {} AS m",
)
DONE = (
    "SELECT {}",
    "SELECT * FROM {} AS m",
    "SELECT {}, (SELECT count(*) FROM spread)",
    "SELECT {} WHERE 3 = (SELECT max(id) FROM spread)",
    "DO $$DECLARE r record; BEGIN FOR r IN SELECT id FROM spread LOOP PERFORM {}; END LOOP; END$$",
    "BEGIN; DECLARE c CURSOR FOR SELECT id FROM spread; FETCH 1 FROM c; SELECT {}; COMMIT",
)


@pytest.fixture
def spread(segments: Sql) -> Iterator[Sql]:
    """Rows on several segments."""
    segments.run(
        "CREATE TABLE spread AS SELECT id, id * 2 AS x FROM generate_series(1, 3) id DISTRIBUTED BY (id)"
    )
    yield segments
    segments.run("ROLLBACK; DROP TABLE spread")
    made = segments.column(
        "SELECT relname FROM pg_class WHERE relname LIKE 'called_%' AND relkind = 'r'"
    )
    segments.run(f"DROP TABLE IF EXISTS {', '.join(['made', *made])} CASCADE")


def test_a_call_within_a_query_that_segments_work_for_is_refused(spread: Sql) -> None:
    for query in REFUSED:
        for _ in range(2):
            with pytest.raises(
                psycopg2.errors.FeatureNotSupported, match="a query that segments work for"
            ) as caught:
                spread.run(query.format(_LOAD.format("never")))
            assert "by queries in parentheses" in (caught.value.diag.message_hint or "")
            # The session is as it was.
            spread.run(f"SELECT {_LOAD.format('after')}")
    assert spread.value(
        "SELECT to_regclass('called_never') IS NULL AND to_regclass('made') IS NULL"
    )


@pytest.mark.parametrize("query", DONE)
def test_other_calls_are_done(spread: Sql, query: str) -> None:
    spread.run(query.format(_LOAD.format("there")))
    assert spread.value("SELECT count(*) > 0 FROM called_there")


# Of each function that makes tables in the caller's transaction.
MADE = (
    "cerebro_train_test_split('spread', 'called_split', 0.5)",
    "cerebro_train_test_split('spread', 'called_parts', 0.5, separate_output_tables := true)",
    "cerebro_encode('spread', 'called_packed', 'called_rows', 'id')",
    "cerebro_load_model('called_models', cerebro_mlp(1, ARRAY[8], 1))",
    "cerebro_generate_configs('called_models', 'called_configs', ARRAY[1], "
    "$${'loss': ['mse'], 'optimizer_params_list': [{'optimizer': ['SGD']}]}$$, $${'batch_size': [4]}$$)",
    "cerebro_gpu_configuration('called_gpus', 'nvidia')",
)


def test_the_server_says_nothing_of_the_tables_that_are_made(spread: Sql) -> None:
    spread.run("SELECT cerebro_pack_columns('spread', 'called_packed', 'id', 'x')")
    for call in MADE:
        del spread.connection.notices[:]
        spread.run(f"SELECT {call}")
        assert not [told for told in spread.notices if "DISTRIBUTED" in told], call
