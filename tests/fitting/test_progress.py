"""What others see while a run goes on, what the caller is told, and how a run is stopped."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import psycopg2
import pytest
from gates import Gate
from pace import joined, stretched
from pace import until as wait_for

from tests.fitting.conftest import ADAM
from tests.fitting.sizes import PARTITIONS

Fit = Callable[..., tuple[str, int]]
DROP = "SELECT cerebro_drop_run((SELECT run_id FROM cerebro.runs WHERE name = %s))"


def test_the_caller_sees_a_notice_an_epoch(bench: Any, fit: Fit) -> None:
    del bench.connection.notices[:]
    fit(epochs=3, metrics_compute_frequency=1)
    lines = [line for line in bench.connection.notices if "epoch" in line]
    assert [line.split(":  ")[1].split(":")[0] for line in lines] == [
        f"epoch {number} of 3" for number in (1, 2, 3)
    ]
    assert "4 configurations" in lines[0]
    assert "best training accuracy" in lines[2]


def test_every_hop_is_a_row_and_every_configuration_hops_to_every_partition_once_an_epoch(
    bench: Any, fit: Fit
) -> None:
    _, run_id = fit(epochs=3)
    rows = bench.fetch(
        "SELECT mst_key, epoch, array_agg(partition_key ORDER BY partition_key), "
        "array_agg(position ORDER BY position) FROM cerebro.hops WHERE run_id = %s "
        "GROUP BY mst_key, epoch",
        (run_id,),
    )
    assert len(rows) == 4 * 3
    everything = list(range(PARTITIONS))
    assert all(row[2] == everything and row[3] == everything for row in rows)
    planned = bench.fetch(
        "SELECT mst_key, epoch, position, partition_key FROM cerebro.catalog_plan "
        "WHERE run_id = %s ORDER BY 1, 2, 3",
        (run_id,),
    )
    done = bench.fetch(
        "SELECT mst_key, epoch, position, partition_key FROM cerebro.hops "
        "WHERE run_id = %s ORDER BY 1, 2, 3",
        (run_id,),
    )
    assert done == planned
    sums = bench.row(
        "SELECT sum(rows), bool_and(finished > started), bool_and(waited >= 0 AND read >= 0 "
        "AND trained > 0 AND written >= 0), count(DISTINCT pid) = count(DISTINCT worker) "
        "FROM cerebro.hops WHERE run_id = %s",
        (run_id,),
    )
    assert sums == (4 * 3 * 120, True, True, True)


def test_one_configuration_is_in_one_place_at_a_time(bench: Any, fit: Fit) -> None:
    _, run_id = fit(epochs=3, num_workers=4)
    overlaps = bench.value(
        "SELECT count(*) FROM cerebro.hops a JOIN cerebro.hops b ON a.run_id = b.run_id "
        "AND a.mst_key = b.mst_key AND (a.epoch, a.position) < (b.epoch, b.position) "
        "AND a.finished > b.started WHERE a.run_id = %s",
        (run_id,),
    )
    assert overlaps == 0


def test_views_after_a_run(bench: Any, fit: Fit) -> None:
    _, run_id = fit(epochs=2, validation_table="val", metrics_compute_frequency=1)
    progress = bench.row(
        "SELECT status, epoch, epochs, configurations, failed, hops_done, hops_planned, "
        "rows_per_second > 0, estimated_end = finished, best_mst_key, best_so_far "
        "FROM cerebro.progress WHERE run_id = %s",
        (run_id,),
    )
    hops = 4 * 2 * PARTITIONS
    assert progress[:9] == ("finished", 2, 2, 4, 0, hops, hops, True, True)
    best = (
        bench.row(
            "SELECT mst_key, validation_metrics[1] FROM cerebro.leaderboard "
            "WHERE run_id = %s AND rank = 1 ORDER BY mst_key",
            (run_id,),
        )
        if bench.value(
            "SELECT count(*) = 1 FROM cerebro.leaderboard WHERE run_id = %s AND rank = 1", (run_id,)
        )
        else None
    )
    if best is not None:
        assert progress[9:] == best
    metrics = bench.fetch(
        "SELECT dataset, epoch, count(*) FROM cerebro.metrics WHERE run_id = %s "
        "GROUP BY 1, 2 ORDER BY 1, 2",
        (run_id,),
    )
    assert metrics == [
        ("training", 1, 4), ("training", 2, 4), ("validation", 1, 4), ("validation", 2, 4)
    ]  # fmt: skip
    ranks = bench.fetch(
        "SELECT rank, validation_metrics[1] FROM cerebro.leaderboard WHERE run_id = %s ORDER BY 1",
        (run_id,),
    )
    assert [value for _, value in ranks] == sorted((v for _, v in ranks), reverse=True)


def test_one_metric_is_never_ranked_against_another(
    bench: Any, fit: Fit, selection: Callable[..., str]
) -> None:
    others = ADAM.replace("['accuracy']", "['top_2_accuracy']")
    before = len(bench.notices)
    out, run_id = fit(configs=selection([1], [ADAM, others]), epochs=1)
    ranks = bench.fetch(
        "SELECT mst_key, training_loss FROM cerebro.leaderboard WHERE run_id = %s ORDER BY rank",
        (run_id,),
    )
    best, loss = min(ranks, key=lambda row: row[1])
    assert ranks[0] == (best, loss)
    (line,) = [line for line in bench.notices[before:] if "epoch 1 of 1" in line]
    assert f"best training loss {loss:.4f} (mst_key {best})" in line
    told = "SELECT best_mst_key, best_so_far FROM cerebro.progress WHERE run_id = %s"
    assert bench.row(told, (run_id,)) == (best, loss)
    answers = {}
    for which in (f"mst_key := {best}", "ensemble := 1"):
        bench.run("DROP TABLE IF EXISTS answers")
        bench.run(f"SELECT cerebro_predict('{out}', 'blobs', 'id', 'x', 'answers', {which})")
        answers[which] = bench.fetch("SELECT * FROM answers ORDER BY 1, 2, 3")
    first, second = answers.values()
    assert first == second


class Background:
    """A run in a connection of its own, which another one watches."""

    def __init__(self, dsn: str, sql: str, values: tuple[Any, ...]) -> None:
        self.connection = self._connect(dsn)
        self.error: psycopg2.Error | None = None
        self.pid = self.connection.info.backend_pid
        self._thread = threading.Thread(target=self._run, args=(sql, values))
        self._thread.start()

    def _run(self, sql: str, values: tuple[Any, ...]) -> None:
        try:
            with self.connection.cursor() as cursor:
                cursor.execute(sql, values)
        except psycopg2.Error as error:
            self.error = error

    def _connect(self, dsn: str) -> Any:
        connection = psycopg2.connect(dsn)
        connection.autocommit = True
        return connection

    def _close(self) -> None:
        self.connection.close()

    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def join(self) -> None:
        joined(self._thread)
        self._close()


def until(bench: Any, query: str, values: tuple[Any, ...] = (), seconds: float = 180) -> Any:
    """Ask until the answer is true. On a busy machine a first hop waits for all processes."""
    deadline = time.monotonic() + stretched(seconds)
    while time.monotonic() < deadline:
        answer = bench.value(query, values)
        if answer:
            return answer
        time.sleep(0.05)
    raise AssertionError(f"never true: {query}")


def test_a_run_is_seen_while_it_goes_on_and_stops_when_cancelled(bench: Any, fit: Fit) -> None:
    call = "SELECT cerebro_fit_multiple('packed', 'endless', 'configs', 100000, name := 'endless')"
    background = Background(bench.dsn, call, ())
    until(
        bench,
        "SELECT count(*) > 20 FROM cerebro.progress p JOIN cerebro.hops USING (run_id) WHERE p.name = 'endless'",
    )
    status, done, planned, end = bench.row(
        "SELECT status, hops_done, hops_planned, estimated_end > now() FROM cerebro.progress "
        "WHERE name = 'endless'"
    )
    assert (status, planned, end) == ("running", 4 * PARTITIONS * 100_000, True)
    assert done > 20
    workers = bench.column(
        "SELECT DISTINCT h.pid FROM cerebro.hops h JOIN cerebro.runs USING (run_id) WHERE name = 'endless'"
    )
    with pytest.raises(psycopg2.errors.ObjectInUse, match="which another run is making"):
        fit(out="endless")
    began = time.monotonic()
    bench.run("SELECT pg_cancel_backend(%s)", (background.pid,))
    until(
        bench,
        "SELECT count(*) = 0 FROM pg_stat_activity WHERE pid = ANY (%s) AND state = 'active'",
        (workers,),
        seconds=10,
    )
    background.join()
    assert time.monotonic() - began < stretched(5)
    assert background.error is not None
    assert background.error.pgcode == "57014"
    assert "cerebro.cerebro_resume(" in (background.error.diag.message_hint or "")
    assert bench.value("SELECT status FROM cerebro.runs WHERE name = 'endless'") == "cancelled"
    assert bench.value("SELECT to_regclass('endless') IS NULL")
    bench.run(DROP, ("endless",))
    fit(epochs=1)


def test_a_statement_timeout_stops_a_run_too(bench: Any, fit: Fit) -> None:
    for seconds in (2, 16, 128):  # until there is a run by then, on a machine that is busy
        bench.run("SET statement_timeout = %s", (f"{seconds}s",))
        try:
            with pytest.raises(psycopg2.errors.QueryCanceled, match="statement timeout") as caught:
                fit(epochs=100_000, name="timed out")
        finally:
            bench.run("RESET statement_timeout")
        runs = bench.column("SELECT run_id FROM cerebro.runs WHERE name = 'timed out'")
        if runs:
            break
    (run_id,) = runs
    told = caught.value.diag
    assert told.message_primary.startswith(f"run {run_id} was cancelled: ")
    assert told.message_hint == f"SELECT cerebro.cerebro_resume({run_id}) goes on with it"
    assert bench.value("SELECT status FROM cerebro.runs WHERE name = 'timed out'") == "cancelled"
    bench.run(DROP, ("timed out",))
    fit(epochs=1)


def test_a_run_whose_caller_was_killed_is_reported_as_interrupted(bench: Any, fit: Fit) -> None:
    call = "SELECT cerebro_fit_multiple('packed', 'orphan', 'configs', 100000, name := 'orphan')"
    background = Background(bench.dsn, call, ())
    running = "SELECT count(*) > 5 FROM cerebro.hops JOIN cerebro.runs USING (run_id) WHERE name = 'orphan'"
    until(bench, running)
    assert bench.value("SELECT status FROM cerebro.progress WHERE name = 'orphan'") == "running"
    bench.run("SELECT pg_terminate_backend(%s)", (background.pid,))
    until(
        bench,
        "SELECT status = 'interrupted' FROM cerebro.progress WHERE name = 'orphan'",
        seconds=15,
    )
    background.join()
    bench.run(DROP, ("orphan",))


_CLIENT = """
import sys, psycopg2
connection = psycopg2.connect(sys.argv[1])
connection.autocommit = True
cursor = connection.cursor()
cursor.execute("SET client_min_messages = error")
cursor.execute("SELECT name FROM pg_settings WHERE name = 'client_connection_check_interval'")
if cursor.fetchall():
    cursor.execute("SET client_connection_check_interval = 0")
cursor.execute("SELECT cerebro_fit_multiple('packed', 'alone', 'configs', 100000, name := 'alone')")
"""


def test_a_run_whose_client_was_killed_stops_within_seconds(bench: Any, fit: Fit) -> None:
    # Nothing is sent to the client, and the server does not look for it by itself.
    with subprocess.Popen([sys.executable, "-c", _CLIENT, bench.dsn]) as client:
        try:
            until(
                bench,
                "SELECT count(*) > 5 FROM cerebro.hops JOIN cerebro.runs USING (run_id) "
                "WHERE name = 'alone'",
            )
        finally:
            client.kill()
    stopped = "SELECT status = 'interrupted' FROM cerebro.progress WHERE name = 'alone'"
    until(bench, stopped, seconds=5)
    error = bench.value("SELECT error FROM cerebro.runs WHERE name = 'alone'")
    assert error == "the client is gone; its session ends too"
    run_id = bench.value("SELECT run_id FROM cerebro.runs WHERE name = 'alone'")
    bench.run("SELECT cerebro_drop_run(%s)", (run_id,))


def test_sessions_end_with_their_call(bench: Any, fit: Fit) -> None:
    count = (
        "SELECT count(*) FROM pg_stat_activity "
        "WHERE application_name = 'cerebro worker' AND datname = current_database()"
    )
    fit(epochs=1, num_workers=2)
    until(bench, f"SELECT ({count}) = 0", seconds=10)  # a process takes a moment to end


def test_programs_are_compiled_once_a_worker(
    bench: Any, gate: Gate, selection: Callable[..., str], has_segments: bool
) -> None:
    configs = selection(
        [1],
        [f"{ADAM.replace('0.01', str(rate))},l1=0.001" for rate in (0.011, 0.012)],
        ["batch_size=7", "batch_size=9"],
    )
    call = f"SELECT cerebro_fit_multiple('packed', 'compiled', '{configs}', 3, num_workers := 2)"
    gate.shut()
    background = Background(bench.dsn, call, ())
    if not has_segments:
        wait_for(lambda: len(gate.waiting()) == 2)  # each has a hop, and waits with it
    gate.open()
    background.join()
    run_id = bench.value("SELECT run_id FROM compiled_summary")
    process = "partition_key" if has_segments else "worker"  # each segment has a process
    compiled = bench.column(
        f"SELECT sum(compiled::int) FROM cerebro.hops WHERE run_id = %s GROUP BY {process}",
        (run_id,),
    )
    assert compiled == [1] * (PARTITIONS if has_segments else 2)
