"""What a packing or a prediction has begun and not finished is dropped, by it or by the next call."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import psycopg2
import pytest
from reasons import NO_ADDRESSES

from cerebro_db.postgres.sessions.locks import lock_key
from tests.conftest import Sql

ROLE = f"narrow_{os.getpid()}"
UNFINISHED = "COMMENT ON TABLE %s IS 'Cerebro-DB: %s not finished'"
TABLES = (
    "SELECT c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
    "WHERE n.nspname = 'public' AND c.relkind = 'r' ORDER BY 1"
)


@pytest.fixture
def narrow(sql: Sql, administrator: Sql, connect: Callable[[str], Sql]) -> Iterator[Sql]:
    """A session of a role that may have two connections."""
    sql.run(f"CREATE ROLE {ROLE} LOGIN CONNECTION LIMIT 2")
    sql.run(f"GRANT cerebro_user TO {ROLE}; GRANT CREATE, USAGE ON SCHEMA public TO {ROLE}")
    sql.run(
        "CREATE TABLE numbers AS SELECT i AS id, i % 2 AS y, ARRAY[i, 1]::real[] AS x "
        "FROM generate_series(1, 100) i; CREATE VIEW seen AS SELECT * FROM numbers;"
        f"GRANT SELECT ON numbers, seen TO {ROLE}"
    )
    session = connect(psycopg2.extensions.make_dsn(sql.dsn, user=ROLE))
    yield session
    session.connection.close()
    sql.run(f"DROP OWNED BY {ROLE}; DROP ROLE {ROLE}")


@pytest.mark.not_on_segments(NO_ADDRESSES)
@pytest.mark.parametrize("source", ["seen", "numbers"])
def test_a_packing_without_connections_leaves_nothing(sql: Sql, narrow: Sql, source: str) -> None:
    with pytest.raises(psycopg2.Error, match="too many connections"):
        narrow.run(f"SELECT cerebro.cerebro_pack('{source}', 'out', 'y', 'x')")
    assert sql.column(TABLES) == ["numbers"]
    sql.run(f"ALTER ROLE {ROLE} CONNECTION LIMIT -1")
    narrow.run(f"SELECT cerebro.cerebro_pack('{source}', 'out', 'y', 'x')")
    assert sql.column(TABLES) == ["numbers", "out", "out_summary"]


def left(sql: Sql) -> None:
    """Tables as calls leave them whose processes were killed, of two roles, and one of a user."""
    for name, what in (
        ("old_packing", "a packing that is"),
        ("old_staging", "a packing that is"),
        ("cerebro_draft_1", "predictions that are"),
        ("theirs_packing", "a packing that is"),
    ):
        sql.run(f"CREATE TABLE {name} (x int)")
        sql.run(UNFINISHED % (name, what))
    sql.run("CREATE TABLE mine_packing (x int)")
    sql.run(f"ALTER TABLE theirs_packing OWNER TO {ROLE}")


def test_the_next_call_of_the_role_drops_what_is_left(sql: Sql, narrow: Sql) -> None:
    left(sql)
    sql.connection.notices.clear()
    sql.run("SELECT cerebro.cerebro_pack('numbers', 'out', 'y', 'x')")
    told = "".join(sql.connection.notices)
    assert sql.column(TABLES) == ["mine_packing", "numbers", "out", "out_summary", "theirs_packing"]
    for name in ("old_packing", "old_staging", "cerebro_draft_1"):
        assert f"dropped public.{name}, which a call has left that was killed" in told


def test_what_a_call_works_on_is_left_alone(
    sql: Sql, narrow: Sql, connect: Callable[[str], Sql]
) -> None:
    left(sql)
    other = connect(sql.dsn)
    other.run("SELECT pg_advisory_lock(%s)", [lock_key("pack public.old")])
    sql.run("SELECT cerebro.cerebro_pack('numbers', 'out', 'y', 'x')")
    assert {"old_packing", "old_staging"} <= set(sql.column(TABLES))
    assert "cerebro_draft_1" not in sql.column(TABLES)
    with pytest.raises(psycopg2.Error, match=r"a run that goes on uses public\.old"):
        sql.run("SELECT cerebro.cerebro_drop_outputs('old')")


def test_it_can_be_dropped_by_the_name_of_the_output(sql: Sql, narrow: Sql) -> None:
    left(sql)
    dropped = sql.column("SELECT cerebro.cerebro_drop_outputs('old')")
    assert sorted(dropped) == ["public.old_packing", "public.old_staging"]
    with pytest.raises(psycopg2.Error, match="no output of Cerebro-DB"):
        sql.run("SELECT cerebro.cerebro_drop_outputs('mine_packing')")
