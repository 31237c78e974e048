"""The fence of direct workers: an order is answered or taken back, whoever comes to its lock first."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from typing import Any

import psycopg2
from gates import Gate
from pace import until
from servers import connected

from tests.conftest import Sql
from tests.fitting.direct import (
    PROGRAM,
    Worker,
    hops_of,
    ordered,
    paused,
    status,
    still,
)
from tests.fitting.direct import calm as calm
from tests.fitting.direct import gate as gate
from tests.fitting.direct import keepers as keepers
from tests.fitting.direct import worker as worker
from tests.fitting.test_progress import Background
from tests.fitting.test_resume import results

RESUME = "SELECT cerebro_resume(%s)"
ROUNDS = 40


@contextmanager
def held(dsn: str, key: int) -> Iterator[None]:
    """Nobody else gets a lock, until the end."""
    with closing(connected(dsn)) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_lock(%s)", (key,))
        yield


def waiting(bench: Any, key: int) -> int:
    """How many sessions wait for a lock."""
    return int(
        bench.value(
            "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND objsubid = 1 "
            "AND (classid::bigint << 32) | objid::bigint = %s",
            (key,),
        )
    )


def place_of(bench: Any, order_id: int) -> tuple[int, ...]:
    """Configuration, epoch and position of the hop of an order."""
    names = ("mst_key", "epoch", "position")
    columns = ", ".join(f"(hop::json ->> '{name}')::int" for name in names)
    return tuple(
        bench.row(f"SELECT {columns} FROM cerebro._direct_orders WHERE order_id = %s", (order_id,))
    )


def record(bench: Any, run_id: int, place: tuple[int, ...]) -> Any:
    """When a hop began, and by which session it was recorded; None where it was not made."""
    rows = bench.fetch(
        "SELECT started, pid FROM cerebro.hops WHERE run_id = %s AND mst_key = %s AND epoch = %s "
        "AND position = %s",
        (run_id, *place),
    )
    return rows[0] if rows else None


def pid_of(bench: Any, run_id: int) -> int:
    """The server process of the worker that has joined last."""
    sql = "SELECT pid FROM cerebro.direct_workers WHERE run_id = %s ORDER BY joined DESC LIMIT 1"
    return int(bench.value(sql, (run_id,)))


def test_whoever_comes_first_is_seen_by_the_other(bench: Any, calm: list[Any]) -> None:
    """What was committed behind a fence is there for whoever comes to it next, on all segments."""
    run_id = paused(bench, "fence_race")
    bench.run("CREATE TABLE brought (number int, part int)")
    dice, outcomes = random.Random(1), set()
    with closing(connected(bench.dsn)) as other:
        worker = Sql(other, bench.dsn)
        for number in range(ROUNDS):
            fence = dice.getrandbits(63)
            order_id = bench.value(
                "INSERT INTO cerebro._direct_orders (run_id, worker_id, hop, fence) "
                "VALUES (%s, 1, '{}', %s) RETURNING order_id",
                (run_id, fence),
            )
            failed: list[psycopg2.Error] = []

            def answer(values: tuple[Any, ...], failed: list[psycopg2.Error] = failed) -> None:
                worker.run(
                    "BEGIN; INSERT INTO brought SELECT %s, generate_series(1, 20)", values[:1]
                )
                try:
                    worker.run("SELECT cerebro._answer_order(%s, %s, %s, '{}'); COMMIT", values[1:])
                except psycopg2.Error as error:
                    failed.append(error)
                    worker.run("ROLLBACK")

            racer = threading.Thread(target=answer, args=((number, run_id, order_id, fence),))
            racer.start()
            time.sleep(dice.uniform(0, 0.02) if number % 2 else 0)
            is_taken = bench.value(
                "SELECT cerebro._take_order_back(%s, %s, %s)", (run_id, order_id, fence)
            )
            brought = bench.value("SELECT count(*) FROM brought WHERE number = %s", (number,))
            answers = bench.value(
                "SELECT count(*) FROM cerebro._direct_answers WHERE order_id = %s", (order_id,)
            )
            racer.join()
            assert [one.pgcode for one in failed] == (["YC007"] if is_taken else [])
            assert (brought, answers) == ((0, 0) if is_taken else (20, 1))
            outcomes.add(is_taken)
    assert outcomes == {True, False}
    bench.run("DROP TABLE brought")
    bench.run("SELECT cerebro_drop_run(%s)", (run_id,))


def test_an_order_that_is_taken_back_cannot_be_committed(
    bench: Any, calm: list[Any], gate: Gate, worker: Callable[..., Worker]
) -> None:
    """The driver comes first, while the state is on its way; and nobody else waits for that."""
    run_id = paused(bench, "fence_cancelled")
    one = worker(run_id)
    until(lambda: status(bench, run_id) == ["joining"])
    with gate:
        caller = Background(bench.dsn, RESUME, (run_id,))
        until(lambda: ordered(bench, run_id))
    with ExitStack() as lock:
        with still(bench, gate, run_id, one) as (order_id, mst_key, fence):
            place = place_of(bench, order_id)
            lock.enter_context(held(bench.dsn, fence))
            cancel = "SELECT cerebro_cancel(%s, %s)"
            canceller = Background(bench.dsn, cancel, (run_id, mst_key))
            until(lambda: waiting(bench, fence) == 1)
        until(lambda: waiting(bench, fence) == 2)
        made = hops_of(bench, run_id)
        for table in ("workers", "orders", "answers"):
            bench.run(
                "SET lock_timeout = '5s'; "
                f"DELETE FROM cerebro.catalog_direct_{table} WHERE run_id = 0; RESET lock_timeout"
            )
    canceller.join()
    assert canceller.error is None
    assert record(bench, run_id, place) is None
    gate.slow_down(0)
    until(lambda: caller.error or not caller.is_alive() or hops_of(bench, run_id) > made)
    caller.join()
    assert caller.error is None
    assert record(bench, run_id, place) is None
    others = [row for row in calm[0] if row[0] != mst_key]
    assert results(bench, "fence_cancelled", run_id)[0] == others
    code, told, errors = one.ended()
    assert (code, errors) == (0, "")
    assert "a hop has failed" not in told
    bench.run("SELECT cerebro_drop_run(%s)", (run_id,))


def test_drivers_die_and_the_next_one_comes_before_or_after_a_hop(
    bench: Any, calm: list[Any], gate: Gate, worker: Callable[..., Worker]
) -> None:
    """A driver that goes on takes a hop as it is, or has it made again; a worker that hangs is ended."""
    run_id = paused(bench, "fence_out")
    one = worker(run_id)
    until(lambda: status(bench, run_id) == ["joining"])
    command = [PROGRAM, "resume", str(run_id), "--dsn", bench.dsn, "--no-live"]

    def driver() -> subprocess.Popen[bytes]:
        return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def killed(process: subprocess.Popen[bytes]) -> None:
        process.kill()
        process.communicate()
        shown = "SELECT status FROM cerebro.runs WHERE run_id = %s"
        until(lambda: bench.value(shown, (run_id,)) == "interrupted")

    with gate:
        first = driver()
        until(lambda: ordered(bench, run_id))
    with ExitStack() as lock:  # the worker comes first
        with still(bench, gate, run_id, one) as (order_id, _, fence):
            place = place_of(bench, order_id)
            lock.enter_context(held(bench.dsn, fence))
        until(lambda: waiting(bench, fence) == 1)
        killed(first)
        second = driver()
        until(lambda: waiting(bench, fence) == 2)
        assert record(bench, run_id, place) is None
    until(lambda: record(bench, run_id, place))
    assert record(bench, run_id, place)[1] == pid_of(bench, run_id)
    with ExitStack() as lock:  # the driver comes first
        with still(bench, gate, run_id, one) as (order_id, _, fence):
            place = place_of(bench, order_id)
            lock.enter_context(held(bench.dsn, fence))
            killed(second)
            caller = Background(bench.dsn, RESUME, (run_id,))
            until(lambda: waiting(bench, fence) == 1)
        until(lambda: waiting(bench, fence) == 2)
        released = bench.value("SELECT clock_timestamp()")
    until(lambda: record(bench, run_id, place))
    assert record(bench, run_id, place)[0] > released
    with gate:
        until(lambda: ordered(bench, run_id))
        os.kill(one.process.pid, signal.SIGSTOP)  # it hangs
    order_id, _, _ = until(lambda: ordered(bench, run_id))
    place = place_of(bench, order_id)
    time.sleep(1)
    assert record(bench, run_id, place) is None
    bench.run("SELECT pg_terminate_backend(%s)", (pid_of(bench, run_id),))
    until(lambda: record(bench, run_id, place))
    gate.slow_down(0)
    caller.join()
    assert caller.error is None
    assert results(bench, "fence_out", run_id) == calm
    bench.run("SELECT cerebro_drop_run(%s)", (run_id,))
