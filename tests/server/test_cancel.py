"""A cancel ends the work of all workers within two seconds, whatever they are at."""

from __future__ import annotations

import time
from collections.abc import Callable

import psycopg2.errors
import pytest

from tests.conftest import Sql
from tests.server.conftest import DEEP, FOREVER, WORKERS, Caller, busy_workers, until

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("good_ends")]

SECONDS = 2
CANCEL = "SELECT pg_cancel_backend(%s)"
BUSY = WORKERS.replace("ORDER", "AND state = 'active' ORDER")


def by_server(caller: Caller, watcher: Sql) -> None:
    watcher.run(CANCEL, [caller.pid])


def by_client(caller: Caller, watcher: Sql) -> None:
    """As psql does it at Ctrl-C."""
    caller.sql.connection.cancel()


@pytest.mark.parametrize("cancel", [by_server, by_client])
def test_cancel_of_a_run(
    caller: Caller, watcher: Sql, cancel: Callable[[Caller, Sql], None]
) -> None:
    caller.start(caller.fit, "endless")
    busy_workers(watcher, "cerebro_train")
    cancel(caller, watcher)
    until(lambda: not watcher.fetch(BUSY), SECONDS)
    caller.wait(SECONDS)
    assert isinstance(caller.error, psycopg2.errors.QueryCanceled)
    assert caller.sql.value("SELECT 1") == 1


def test_statement_timeout_of_a_run(caller: Caller, watcher: Sql) -> None:
    caller.sql.run("SET statement_timeout = '3s'")
    caller.start(caller.fit, "endless")
    caller.wait(3 + SECONDS)
    until(lambda: not watcher.fetch(BUSY), SECONDS)
    assert isinstance(caller.error, psycopg2.errors.QueryCanceled)


@pytest.mark.parametrize(("jit", "delay"), [(False, 0.5), (True, 3)])
def test_cancel_while_a_program_is_made(
    caller: Caller, watcher: Sql, jit: bool, delay: float
) -> None:
    caller.prepare()
    caller.start(caller.hop, FOREVER, net=DEEP, jit=jit)
    time.sleep(delay)
    cancelled(caller, watcher)
    caller.prepare()  # what was cancelled has ended its trainer
    caller.hop(jit=jit)


def test_a_session_whose_hop_was_cancelled(caller: Caller, watcher: Sql) -> None:
    caller.prepare()
    caller.start(caller.hop, FOREVER)
    time.sleep(1.5)
    cancelled(caller, watcher)
    caller.prepare()
    caller.hop()
    caller.start(caller.hop, FOREVER)
    time.sleep(0.5)
    cancelled(caller, watcher)


def cancelled(caller: Caller, watcher: Sql) -> None:
    """Cancel what a session does; it must end in time, and because of that."""
    watcher.run(CANCEL, [caller.pid])
    caller.wait(SECONDS)
    assert isinstance(caller.error, psycopg2.errors.QueryCanceled)
