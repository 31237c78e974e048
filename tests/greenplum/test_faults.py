"""What stops a run where partitions lie on segments: it ends as if nothing had happened, to the bit.

Processes are found by what the coordinator tells of its segments, so these tests need them on this machine.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import psycopg2
import pytest

from chaos.segments import NotHere, Segments
from chaos.server import until
from tests.greenplum.test_fitting import make_tables

pytestmark = pytest.mark.slow

SECONDS = 120.0
CONFIGURATIONS, EPOCHS = 10, 6
# Prepared on segments, with their locks: those that lost their coordinator are looked for once a minute
# (gp_dtx_recovery_interval) and aborted when they are two minutes old (gp_dtx_recovery_prepared_period).
IN_DOUBT = "SELECT count(*) FROM gp_dist_random('pg_prepared_xacts')"
IN_DOUBT_SECONDS = 300.0


def _fit(output: str, durability: str = "hop", epochs: int = EPOCHS) -> str:
    return (
        f"SELECT cerebro_fit_multiple('packed', '{output}', 'configs', {epochs}, "
        "validation_table := 'val', metrics_compute_frequency := 2, "
        f"durability := '{durability}')"
    )


class Call:
    """A statement in a session of its own, in a thread."""

    def __init__(self, dsn: str, sql: str, *before: str) -> None:
        self.connection = psycopg2.connect(dsn)
        self.connection.autocommit = True
        for statement in before:
            self.connection.cursor().execute(statement)
        self.again(sql)

    def again(self, sql: str) -> None:
        """Another statement in the same session."""
        self.error: psycopg2.Error | None = None
        self._thread = threading.Thread(target=self._run, args=(sql,), daemon=True)
        self._thread.start()

    def _run(self, sql: str) -> None:
        try:
            self.connection.cursor().execute(sql)
        except psycopg2.Error as error:
            self.error = error

    @property
    def over(self) -> bool:
        return not self._thread.is_alive()

    def wait(self, seconds: float = SECONDS) -> str | None:
        """Wait for it; returns its SQLSTATE, None where it has succeeded."""
        self._thread.join(seconds)
        assert self.over
        return None if self.error is None else self.error.pgcode or "lost"

    def end(self, seconds: float = SECONDS) -> str | None:
        """The same, and end its session."""
        sqlstate = self.wait(seconds)
        self.connection.close()
        return sqlstate


class Bench:
    """The cluster with tables and what an undisturbed run has left."""

    def __init__(self, server: Segments, blobs: Any) -> None:
        self.server, self._number = server, 0
        make_tables(_Tables(server), blobs, "")
        assert Call(server.dsn, _fit("calm")).end() is None
        self.calm = self.left("calm")

    def left(self, output: str) -> list[Any]:
        """Weights, states and results of a run."""
        queries = (
            "SELECT mst_key, md5(model_weights) FROM {} ORDER BY 1",
            "SELECT mst_key, chunk, md5(state) FROM {}_states ORDER BY 1, 2",
            "SELECT mst_key, training_loss, validation_loss, training_metrics FROM {}_info ORDER BY 1",
        )
        return [self.server.fetch(sql.format(output)) for sql in queries]

    def hops(self) -> int:
        return CONFIGURATIONS * self.server.partitions * EPOCHS

    def least_seconds(self) -> float:
        """A run takes longer: so long took the epochs of the first one whose programs had been compiled."""
        span = (
            "SELECT extract(epoch FROM max(h.finished) - min(h.started))::float8 FROM cerebro.hops h "
            "JOIN cerebro.runs r ON r.run_id = h.run_id WHERE r.model_output_table LIKE '%calm' AND h.epoch > 1"
        )
        return float(self.server.value(span))

    def begin(self, durability: str = "hop", epochs: int = EPOCHS) -> tuple[Call, str, int]:
        """Begin a run, and wait until it has done some hops; also its output and its number."""
        self._number += 1
        output = f"out_{self._number}"
        call = Call(self.server.dsn, _fit(output, durability, epochs))

        def trains() -> int | None:
            assert not call.over, call.error
            row = self.server.run(output)
            return row[0] if row is not None and row[4] >= 2 * CONFIGURATIONS else None

        return call, output, until(trains, SECONDS, "the run trains") or 0

    def status(self, output: str) -> str:
        row = self.server.run(output)
        assert row is not None
        return str(row[2])

    def resumes(self, output: str, run_id: int) -> None:
        """It goes on to the same end."""
        assert Call(self.server.dsn, f"SELECT cerebro_resume({run_id})").end() is None
        self.is_same(output, run_id)

    def is_same(self, output: str, run_id: int) -> None:
        assert self.status(output) == "finished"
        assert self.left(output) == self.calm
        done = "SELECT count(*), count(DISTINCT (mst_key, epoch, position)) FROM cerebro.hops "
        assert self.server.fetch(f"{done} WHERE run_id = {run_id}") == [(self.hops(), self.hops())]

    def drop(self) -> None:
        """All of its tables: other files have some of the same names."""
        names = "SELECT quote_ident(tablename) FROM pg_tables WHERE schemaname = 'public'"
        tables = ", ".join(name for (name,) in self.server.fetch(names))
        self.server.fetch(f"DROP TABLE IF EXISTS {tables} CASCADE")

    def workers(self, output: str) -> list[int]:
        row = self.server.run(output)
        assert row is not None
        return list(row[6])


class _Tables:
    """What makes tables, as the fixtures of other tests have it."""

    def __init__(self, server: Segments) -> None:
        self._server = server

    def run(self, sql: str, parameters: Any = None) -> None:
        self._server.fetch(sql, parameters)

    value = run


@pytest.fixture(scope="module")
def bench(segments_dsn: str, blobs: Any) -> Iterator[Bench]:
    """Skipped where the processes of the cluster are out of reach."""
    try:
        server = Segments(segments_dsn)
    except NotHere as error:
        pytest.skip(str(error))
    found = Bench(server, blobs)
    yield found
    found.drop()
    server.forget_session()


def _ask(function: str) -> Callable[[Bench, Call, int], None]:
    return lambda bench, call, run_id: bench.server.call(f"SELECT {function}({run_id})")


def _signal(function: str) -> Callable[[Bench, Call, int], None]:
    return lambda bench, call, run_id: bench.server.call(
        f"SELECT {function}({call.connection.info.backend_pid})"
    )


STOPS = {
    "cerebro_cancel": (_ask("cerebro_cancel"), "57014", "cancelled"),
    "cerebro_pause": (_ask("cerebro_pause"), None, "paused"),
    "pg_cancel_backend": (_signal("pg_cancel_backend"), "57014", "cancelled"),
    "pg_terminate_backend": (_signal("pg_terminate_backend"), "57P01", "interrupted"),
}


@pytest.mark.parametrize("how", STOPS)
def test_a_run_that_is_stopped_goes_on_to_the_same_end(bench: Bench, how: str) -> None:
    stop, sqlstate, status = STOPS[how]
    call, output, run_id = bench.begin()
    stop(bench, call, run_id)
    # A session that is ended may take its last message with it.
    assert call.end() in (sqlstate, "lost" if sqlstate == "57P01" else sqlstate)
    assert bench.status(output) == status
    bench.resumes(output, run_id)


def test_records_that_their_driver_took_with_it_come_from_the_states(bench: Bench) -> None:
    call, output, run_id = bench.begin()
    bench.server.call(f"SELECT cerebro_pause({run_id})")
    assert call.end() is None
    hops = (
        "SELECT mst_key, epoch, position, partition_key, worker, rows, loss FROM cerebro.hops "
        f"WHERE run_id = {run_id}"
    )
    before = bench.server.fetch(hops)
    newest = (
        f"DELETE FROM cerebro.catalog_hops h WHERE run_id = {run_id} AND NOT EXISTS ("
        "SELECT 1 FROM cerebro.catalog_hops n WHERE n.run_id = h.run_id AND n.mst_key = h.mst_key "
        "AND (n.epoch, n.position) > (h.epoch, h.position)) RETURNING 1"
    )
    assert len(bench.server.fetch(newest)) == CONFIGURATIONS
    bench.resumes(output, run_id)
    assert set(before) <= set(bench.server.fetch(hops))


@pytest.mark.parametrize("seconds", [0.05, 0.1])
def test_a_configuration_that_is_cancelled_leaves_the_others_alone(
    bench: Bench, seconds: float
) -> None:
    call, output, run_id = bench.begin()
    time.sleep(seconds)  # so that the request meets other moments of a hop
    bench.server.call(f"SELECT cerebro_cancel({run_id}, 2)")
    assert call.end() is None
    assert bench.status(output) == "finished"
    others = [[row for row in rows if row[0] != 2] for rows in bench.calm]
    weights, states, info = bench.left(output)
    assert [weights, states, [row for row in info if row[0] != 2]] == others


def test_a_timeout_stops_a_run_and_nothing_of_it_goes_on(bench: Bench) -> None:
    # Of the two signals of a timeout the second one must not end what follows the first.
    timeout = f"SET statement_timeout = {round(1000 * bench.least_seconds() / 2)}"
    call = Call(bench.server.dsn, _fit("late"), timeout)
    assert call.wait() == "57014"
    row = bench.server.run("late")
    assert row is not None
    assert row[2] == "cancelled"
    # Also while the session of the caller stays.
    until(lambda: not bench.workers("late"), 60, "its workers end")
    call.end()
    bench.resumes("late", row[0])


@pytest.mark.parametrize("reads", [True, False])
def test_a_killed_process_of_a_segment_is_replaced(bench: Bench, reads: bool) -> None:
    call, output, run_id = bench.begin()
    killed = bench.server.kill_on_segment(bench.workers(output), reads, random.Random(1))
    assert killed is not None
    assert call.end() is None
    assert any("lost its sessions" in notice for notice in call.connection.notices)
    bench.is_same(output, run_id)


def test_a_coordinator_that_is_restarted(bench: Bench) -> None:
    call, output, run_id = bench.begin()
    bench.server.restart()
    assert call.end() is not None
    assert bench.status(output) == "interrupted"
    bench.resumes(output, run_id)


def _refusal(dsn: str, sql: str) -> str:
    """What a new session says to a statement; nothing where it runs."""
    try:
        connection = psycopg2.connect(dsn)
        try:
            connection.cursor().execute(sql)
        finally:
            connection.close()
    except psycopg2.Error as error:
        return str(error) or type(error).__name__
    return ""


def test_a_segment_that_is_down(bench: Bench) -> None:
    server = bench.server
    if server.value("SELECT count(*) FROM gp_segment_configuration WHERE role = 'm'"):
        pytest.skip("a mirror would take over, as tests/greenplum/test_hosts.py has it")
    server.call("SELECT cerebro_set('worker_retries', '1')")
    call, output, run_id = bench.begin()
    control = server.stopped(1)
    try:
        assert call.end() is not None
        assert call.error is not None
        told = str(call.error)
        # Where it was in the midst of a commit, Greenplum's coordinator resets itself.
        assert "seg1" in told or told.startswith("server closed the connection"), told
        until(lambda: _refusal(server.dsn, "SELECT 1") == "", SECONDS, "the coordinator is back")
        assert "seg1" in _refusal(server.dsn, "SELECT count(*) FROM packed")
    finally:
        control.start()
    server.forget_session()
    server.call("SELECT cerebro_set('worker_retries', NULL)")
    assert bench.status(output) == "interrupted"
    bench.resumes(output, run_id)
    # One that is in doubt keeps its locks until Greenplum ends it, and states may outlive their run.
    until(lambda: not server.value(IN_DOUBT), IN_DOUBT_SECONDS, "no transaction is in doubt")
    server.call("SELECT * FROM cerebro_vacuum('0')")
    until(lambda: not server.sessions(), 30, "all sessions end")
    assert server.leftovers() == []


def test_what_is_left_of_a_run_can_be_dropped(bench: Bench) -> None:
    call, output, run_id = bench.begin(epochs=100 * EPOCHS)  # none that ends before it is paused
    bench.server.call(f"SELECT cerebro_pause({run_id})")
    assert call.end() is None
    states = bench.server.fetch(
        "SELECT relname FROM pg_class WHERE relname LIKE 'run\\_%' AND relkind = 'r'"
    )
    kept = sum(
        bench.server.value(f"SELECT count(*) FROM cerebro_states.{name}") for (name,) in states
    )
    assert kept >= CONFIGURATIONS
    bench.server.call(f"SELECT cerebro_drop_run({run_id})")
    until(lambda: not bench.server.sessions(), 30, "all sessions end")
    assert bench.server.leftovers() == []
    assert bench.server.run(output) is None
