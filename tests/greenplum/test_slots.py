"""Resource queues: a call that waits for its turn says so, and verify tells how many runs there may be."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from typing import Any

import psycopg2
import psycopg2.extensions
import pytest

from cerebro_db.install import installer
from cerebro_db.install.script import Script
from chaos.server import until
from conftest import Sql

PACK = "SELECT cerebro_pack('source', 'packed', 'y', 'x')"
SLOTS = "SELECT count(*) FROM pg_locks WHERE locktype = 'resource queue' AND {} granted"


@pytest.fixture
def queued(segments: Sql) -> Iterator[Any]:
    """A session of a role of which two statements run at a time."""
    segments.run("CREATE RESOURCE QUEUE narrow WITH (ACTIVE_STATEMENTS=2)")
    segments.run("CREATE ROLE slow LOGIN RESOURCE QUEUE narrow; GRANT cerebro_user TO slow")
    segments.run("CREATE SCHEMA slow AUTHORIZATION slow")
    segments.run(
        "CREATE TABLE slow.source AS SELECT g AS y, ARRAY[g]::real[] AS x FROM generate_series(1, 9) g"
    )
    segments.run("ALTER TABLE slow.source OWNER TO slow")
    connection = psycopg2.connect(psycopg2.extensions.make_dsn(segments.dsn, user="slow"))
    connection.autocommit = True
    yield connection
    connection.close()
    segments.run("DROP OWNED BY slow CASCADE; DROP ROLE slow; DROP RESOURCE QUEUE narrow")


def test_a_call_that_waits_for_a_slot_says_so(segments: Sql, queued: Any) -> None:
    if segments.value("SHOW gp_resource_manager") != "queue":
        pytest.skip("this server has resource groups")
    other = psycopg2.connect(psycopg2.extensions.make_dsn(segments.dsn, user="slow"))
    sleeper, caller = (
        threading.Thread(target=_quietly, args=(connection, text), daemon=True)
        for connection, text in ((other, "SELECT pg_sleep(600)"), (queued, PACK))
    )
    sleeper.start()
    until(lambda: segments.value(SLOTS.format("")) == 1, 60, "one has a slot")
    caller.start()
    try:
        until(lambda: segments.value(SLOTS.format("NOT")) > 0, 60, "a session waits for one")
        time.sleep(5)
    finally:
        segments.run("SELECT pg_cancel_backend(%s)", (other.info.backend_pid,))
        sleeper.join()
        caller.join()
        other.close()
    assert any("waiting for a slot" in notice for notice in queued.notices), queued.notices
    assert any("packed 9 rows" in notice for notice in queued.notices), queued.notices


def _quietly(connection: Any, statement: str) -> None:
    with contextlib.suppress(psycopg2.Error):
        connection.cursor().execute(statement)


@pytest.mark.slow
def test_verify_tells_how_many_runs_there_may_be(segments: Sql, queued: Any) -> None:
    notes = installer.verify(segments.dsn, Script()).warnings
    count = segments.value(
        "SELECT count(*)::int FROM gp_segment_configuration WHERE role = 'p' AND content >= 0"
    )
    assert any(
        f"queue narrow allows 2 active statements; a run on {count} segments takes {count + 2}, so 0 runs"
        in note
        for note in notes
    ), notes
    assert any("gp_segworker_relative_priority" in note for note in notes), notes
