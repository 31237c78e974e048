"""Rows that somebody has written into the catalog's copy of one segment, where nobody else has them."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator

import psycopg2
import psycopg2.extensions
import pytest

from cerebro_db.errors import InstallationFailed, InvalidData
from cerebro_db.install import installer
from cerebro_db.install.script import Script
from cerebro_db.postgres.catalog.runs import Catalog
from cerebro_db.postgres.sessions.locks import transaction
from cerebro_db.postgres.sessions.session import Session
from conftest import Sql
from tests.greenplum.test_catalog import new_run


@pytest.fixture
def next_run(segments: Sql, catalog: Catalog) -> Iterator[int]:
    """The number of the next run, whose row is on segment 1 already."""
    number = segments.value(
        "SELECT last_value + is_called::integer FROM cerebro.catalog_runs_run_id_seq"
    )
    columns = segments.value(
        "SELECT string_agg(quote_ident(attname), ', ') FROM pg_attribute "
        "WHERE attrelid = 'cerebro.catalog_runs'::regclass AND attnum > 1 AND NOT attisdropped"
    )
    new_run(catalog, 1)
    alone = _alone(segments)
    with contextlib.closing(alone), alone.cursor() as cursor:
        cursor.execute(
            f"INSERT INTO cerebro.catalog_runs (run_id, {columns}) SELECT %s, {columns} "
            "FROM (SELECT * FROM cerebro.catalog_runs LIMIT 1) AS r".replace(
                "*",
                columns.replace("states", "NULL::text AS states").replace(
                    "lock_key", "-1 AS lock_key"
                ),
            ),
            (number + 1,),
        )
    yield number + 1
    alone = _alone(segments)
    with contextlib.closing(alone), alone.cursor() as cursor:
        cursor.execute("DELETE FROM cerebro.catalog_runs WHERE run_id = %s", (number + 1,))


def _alone(segments: Sql) -> psycopg2.extensions.connection:
    """A session of segment 1 by itself."""
    address, port = segments.row(
        "SELECT address, port FROM gp_segment_configuration WHERE content = 1 AND role = 'p'"
    )
    dsn = psycopg2.extensions.make_dsn(
        segments.dsn, host=address, port=port, options="-c gp_session_role=utility"
    )
    connection = psycopg2.connect(dsn)
    connection.autocommit = True
    return connection


def test_the_next_run_says_which_segment_differs(
    segments: Sql,
    catalog: Catalog,
    next_run: int,
) -> None:
    session = Session(psycopg2.extensions.make_dsn(segments.dsn, user="trainer"), "test")
    session.settle()
    try:
        with pytest.raises(InvalidData) as failure, transaction(session):
            new_run(Catalog(session), 2)
    finally:
        session.close()
    assert failure.value.message == "copies of the catalog differ on segment 1"
    assert "cerebro verify" in str(failure.value.hint)
    with pytest.raises(InstallationFailed) as verified:
        installer.verify(segments.dsn, Script())
    said = verified.value.message
    assert said.startswith("segment 1 ("), said
    assert f"has the row of cerebro.catalog_runs whose run_id is '({next_run})'" in said
    hint = verified.value.hint or ""
    told = re.match(
        r"as a superuser in utility mode \(gp_session_role\) on segment 1: (SELECT .*) shows where the "
        r"row is, and (DELETE .*)<its ctid> removes it; ",
        hint,
    )
    assert told, hint
    alone = _alone(segments)
    with contextlib.closing(alone), alone.cursor() as cursor:
        cursor.execute(told[1])
        (place,) = (ctid for ctid, run_id in cursor.fetchall() if run_id == next_run)
        cursor.execute(f"{told[2]}%s", (place,))
        assert cursor.rowcount == 1
    assert segments.fetch("SELECT * FROM cerebro._catalog_differences()") == []
