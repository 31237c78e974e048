"""A cancel request that comes while a call waits for a process, or sends a message."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg2.errors
import pytest

from chaos.server import until
from conftest import Sql

_TELL = """
CREATE FUNCTION tell_and_look(held boolean) RETURNS text LANGUAGE plpython3u AS $$
import contextlib, os, signal
from cerebro_relay import backend
with backend.deferred():
    os.kill(os.getpid(), signal.SIGINT)
    with backend.held() if held else contextlib.suppress():
        plpy.notice("told")
    try:
        backend.listen(plpy)
    except KeyboardInterrupt:
        with backend.held():
            plpy.notice("heard")
        raise
    return "nothing"
$$
"""
# Leaves a call as an error does that jumps over its frames.
_JUMP = """
CREATE FUNCTION jump() RETURNS boolean LANGUAGE plpython3u AS $$
from cerebro_relay import backend
left = GD["left"] = backend.deferred()
left.__enter__()
return left._mine
$$;
CREATE FUNCTION nests() RETURNS boolean[] LANGUAGE plpython3u AS $$
from cerebro_relay import backend
with backend.deferred() as _, backend.deferred():
    inside = bool(backend._cancel_hook().value)
return [inside, bool(backend._cancel_hook().value)]
$$
"""
_STOP = """
CREATE OR REPLACE FUNCTION stop_trainers(n integer) RETURNS integer[] LANGUAGE plpython3u AS $$
import os, signal
pids = [trainer.pid for trainer in GD["cerebro.relay"]._trainers.values()]
for pid in pids:
    os.kill(pid, signal.SIGSTOP)
return pids
$$
"""


@pytest.fixture
def caller(segments: Sql, connect: Callable[[str], Sql]) -> Iterator[Sql]:
    """A session that has loaded the relay."""
    segments.run(_TELL)
    sql = connect(segments.dsn)
    sql.fetch("SELECT cerebro_version()")
    yield sql
    segments.run("DROP FUNCTION tell_and_look(boolean)")


def test_a_message_is_sent_and_the_cancel_request_arrives_after_it(caller: Sql) -> None:
    with pytest.raises(psycopg2.errors.QueryCanceled):
        caller.fetch("SELECT tell_and_look(true)")
    assert [line.split()[-1] for line in caller.notices[-2:]] == ["told", "heard"]
    assert caller.fetch("SELECT 1") == [(1,)]  # it holds nothing back any more
    # Otherwise the server takes the message for what has failed.
    with pytest.raises(psycopg2.errors.InternalError, match="canceling statement"):
        caller.fetch("SELECT tell_and_look(false)")


def test_what_a_jump_has_left_does_not_outlive_its_statement(caller: Sql, segments: Sql) -> None:
    segments.run(_JUMP)
    assert caller.value("SELECT nests()") == [False, True]
    assert caller.value("SELECT jump()")
    assert caller.value("SELECT nests()") == [False, True]
    assert caller.value("SELECT jump()")
    with pytest.raises(psycopg2.errors.QueryCanceled):  # an interrupt is heard in the next call
        caller.fetch("SELECT tell_and_look(true)")
    segments.run("DROP FUNCTION jump(); DROP FUNCTION nests()")


@pytest.mark.parametrize("how", ["cancel", "timeout"])
@pytest.mark.parametrize("place", ["coordinator", "segments"])
def test_a_call_that_waits_for_its_trainer_is_interrupted(
    segments: Sql, connect: Callable[[str], Sql], how: str, place: str
) -> None:
    sql = connect(segments.dsn)
    rows = " FROM gp_dist_random('gp_id')" if place == "segments" else ""
    number = "gp_segment_id" if rows else "1"  # one that is not known beforehand
    # Volatile, so that it is called where the rows are.
    asked = f"SELECT cerebro._image_fault('no image', ARRAY[1, 1, 1], 'encoded', 1){rows}"
    sql.fetch(asked)
    segments.run(_STOP)
    stopped = sql.column(f"SELECT unnest(stop_trainers({number})){rows}")
    assert stopped
    if how == "timeout":
        sql.run("SET statement_timeout = '1s'")
    else:
        threading.Timer(1, sql.connection.cancel).start()
    begin = time.monotonic()
    with pytest.raises(psycopg2.errors.QueryCanceled, match=how if how == "timeout" else "user"):
        sql.fetch(asked)
    assert time.monotonic() - begin < 10
    # A call that is interrupted ends the trainer, and the next one has another.
    until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in stopped), 20, "they end")
    sql.run("RESET statement_timeout")
    sql.fetch(asked)
    segments.run("DROP FUNCTION stop_trainers(integer)")


def test_a_cancel_at_any_moment_of_a_statement_leaves_the_session_usable(
    segments: Sql, connect: Callable[[str], Sql]
) -> None:
    """The server tells segments of each subtransaction before PL/Python is ready for an error."""
    sql = connect(segments.dsn)
    load = "SELECT cerebro_load_model('cancelled_nets', cerebro_mlp(3, ARRAY[8], 4))"
    sql.fetch(load)
    begin = time.monotonic()
    sql.fetch(load)
    took, pid = time.monotonic() - begin, sql.connection.info.backend_pid
    cancelled = 0
    for number in range(60):
        timer = threading.Timer(took * number / 60, sql.connection.cancel)
        timer.start()
        try:
            sql.fetch(load)
        except psycopg2.errors.QueryCanceled:
            cancelled += 1
        timer.join()
        with contextlib.suppress(psycopg2.errors.QueryCanceled):  # of a request that came late
            sql.fetch("SELECT 1")
        sql.fetch(load)
    assert cancelled > 10
    assert sql.connection.info.backend_pid == pid
    segments.run("DROP TABLE cancelled_nets")
