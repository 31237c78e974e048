"""A backend that used TensorFlow ends within seconds, and cleanly, whatever ends it."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from reasons import NO_SUCH_SQL

from cerebro_db.install import installer
from cerebro_db.install.embedded import Cluster
from cerebro_db.install.script import Script
from tests.conftest import FAST, Sql
from tests.server.conftest import (
    FOREVER,
    WORKERS,
    Caller,
    assert_good_ends,
    busy_workers,
    ended,
    make_tables_at,
    until,
)

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("good_ends")]

TERMINATE = "SELECT pg_terminate_backend(%s)"
ACTIVE = (
    "SELECT FROM pg_stat_activity WHERE pid = %s AND query LIKE '%%cerebro_train%%'"
    " AND state = 'active' AND query_start < clock_timestamp() - interval '1 second'"
)


def test_disconnect_of_an_idle_worker(caller: Caller) -> None:
    caller.prepare()
    caller.hop()
    caller.close()
    ended([caller.pid])


def test_disconnect_after_a_library_has_registered_a_handler_of_its_own(
    caller: Caller, watcher: Sql
) -> None:
    caller.prepare()
    caller.sql.run(
        "DO LANGUAGE plpython3u $$ import ctypes; libc = ctypes.CDLL(None); "
        "libc.on_exit(ctypes.cast(libc.abort, ctypes.c_void_p), None) $$"
    )
    caller.close()
    ended([caller.pid])


def test_disconnect_of_the_owner_of_idle_workers(caller: Caller, watcher: Sql) -> None:
    caller.fit("short", validation_table="val")
    pids = watcher.column(WORKERS)
    caller.close()
    ended([caller.pid, *pids])


def test_terminating_an_idle_worker(caller: Caller, watcher: Sql) -> None:
    caller.prepare(threads=3)
    caller.hop(jit=True)
    watcher.run(TERMINATE, [caller.pid])
    ended([caller.pid])


@pytest.mark.parametrize("query", ["._prepare_", "cerebro_train"])
def test_terminating_busy_workers(caller: Caller, watcher: Sql, query: str) -> None:
    caller.start(caller.fit, "endless")
    pids = busy_workers(watcher, query)
    for pid in pids:
        watcher.run(TERMINATE, [pid])
    ended(pids)


def test_terminating_the_caller_of_busy_workers(caller: Caller, watcher: Sql) -> None:
    caller.start(caller.fit, "endless")
    pids = busy_workers(watcher, "cerebro_train")
    watcher.run(TERMINATE, [caller.pid])
    ended([caller.pid, *pids])


@pytest.mark.not_on_segments(NO_SUCH_SQL)  # client_connection_check_interval
def test_loss_of_the_client_of_a_busy_worker(caller: Caller, watcher: Sql) -> None:
    caller.sql.run("SET client_connection_check_interval = '2s'")
    caller.prepare()
    caller.start(caller.hop, FOREVER)
    until(lambda: watcher.fetch(ACTIVE, [caller.pid]))
    with socket.socket(fileno=os.dup(caller.sql.connection.fileno())) as line:
        line.shutdown(socket.SHUT_RDWR)
    ended([caller.pid])


@pytest.fixture(scope="module")
def own(short_folder: Path) -> Iterator[Cluster]:
    """A cluster that these tests may stop."""
    cluster = Cluster(short_folder / "ends", settings=FAST)
    cluster.start()
    installer.install(cluster.dsn(), Script())
    make_tables_at(cluster.dsn())
    yield cluster
    cluster.destroy()


@pytest.mark.parametrize("configs", ["short", "endless"])
def test_fast_shutdown(own: Cluster, connect: Callable[[str], Sql], configs: str) -> None:
    own.start()
    start = own.log.stat().st_size
    caller, watcher = Caller(own.dsn()), connect(own.dsn())
    caller.start(caller.fit, configs)
    if configs == "endless":
        pids = busy_workers(watcher, "cerebro_train")
    else:
        caller.wait()
        pids = watcher.column(WORKERS)
    assert len(pids) >= 2
    started = time.monotonic()
    assert own.stop() is True
    assert time.monotonic() - started < 5
    log = own.log.read_bytes()[start:].decode()
    assert "received fast shutdown request" in log
    assert "received immediate shutdown request" not in log
    assert_good_ends(own, start)
    caller.close()
