"""Time to look at a run, and what that takes from the run: ``python -m benchmarks.watching DSN``.

As a superuser, in a database with Cerebro-DB. ``--only looks``: commands on a run of 1,000 configurations, 20 epochs and
4 partitions that was never trained; its rows are made in the catalog, and dropped at the end. ``--only effect``: a run
is trained several times, while ``cerebro watch`` shows it in a terminal, every two seconds, and ``cerebro daemon`` answers
a scrape of Prometheus every five seconds. Both stand still (SIGSTOP) in every other span of two seconds: what watching
takes from the rows a second is told by pairs of neighbours, as whole runs differ by more than that.
"""

from __future__ import annotations

import argparse
import math
import os
import pty
import random
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, median
from typing import Any

import psycopg2
from psycopg2.extensions import make_dsn

from benchmarks.meter import TICKS, own_ticks
from cerebro_db.relay.machine import cores

CONFIGURATIONS, EPOCHS, PARTITIONS, WORKERS = 1000, 20, 4, 8
REPEATS = 3
# Runs of more than a minute each.
RUNS, LONG = 6, 240


def make_run(
    execute: Any,
    configurations: int = CONFIGURATIONS,
    epochs: int = EPOCHS,
    partitions: int = PARTITIONS,
    workers: int = WORKERS,
) -> int:
    """Rows of a run as its driver would leave them; returns its run_id.

    Args:
        execute: runs a statement with values, and returns its rows.
    """
    shape = {"c": configurations, "e": epochs, "p": partitions, "w": workers}
    ((run_id,),) = execute(_RUN, shape)
    execute("SET session_replication_role = replica", None)  # no trigger looks at each row
    for statement in (_CONFIGURATIONS, _HOPS, _METRICS):
        execute(statement, shape | {"r": run_id})
    execute("RESET session_replication_role", None)
    return int(run_id)


_RUN = """
INSERT INTO cerebro.catalog_runs
       (name, source_table, validation_table, model_output_table, model_selection_table, model_arch_table,
        num_iterations, metrics_compute_frequency, warm_start, seed, num_partitions, num_workers, threads, manifest,
        status, driver_pid, created, started, finished, cerebro_version, durability, lock_key, output_schema, output_name)
SELECT 'large', 'public.large', 'public.large_val', 'public.large_out', 'public.large_configs', 'public.large_models',
       %(e)s, 1, false, 0, %(p)s, %(w)s, 1, '{"tensorflow": "2.21.0"}', 'finished', 1, '2026-01-01 00:00+00',
       '2026-01-01 00:00+00', '2026-01-01 02:00+00', '0.1.0', 'hop', 4 * (random() * 1e15)::bigint, 'public', 'large_out'
RETURNING run_id
"""
_CONFIGURATIONS = """
INSERT INTO cerebro.catalog_configurations
       (run_id, mst_key, model_id, compile_params, fit_params, hop_seconds, initial_seed, jit, steps_per_call, goal,
        status, budget)
SELECT %(r)s, k, 1 + k %% 3,
       'optimizer=''' || (ARRAY['Adam', 'SGD', 'RMSprop'])[1 + k / 3 %% 3] || '(lr='
       || round((10 ^ (-1 - k %% 7 / 2.0))::numeric, 6) || ')'',metrics=[''accuracy''],loss=''categorical_crossentropy''',
       'epochs=1,batch_size=' || (ARRAY[16, 32, 64, 128])[1 + k %% 4], 0.1, k, false, 1, 'max', 'finished', %(e)s
  FROM generate_series(1, %(c)s) AS k
"""
# Workers take the hops one after another; every tenth of a second one of them waits a little.
_HOPS = """
INSERT INTO cerebro.catalog_hops
SELECT %(r)s, k, e, p, p, n %% %(w)s, 100 + n %% %(w)s, s.began, s.began + interval '80 milliseconds', 0.02, 0.01, 0.06,
       0.01, 1000, 1.0 / e, false, true, 400
  FROM (SELECT k, e, p, ((e - 1) * %(c)s * %(p)s + (k - 1) * %(p)s + p) AS n
          FROM generate_series(1, %(c)s) AS k, generate_series(1, %(e)s) AS e, generate_series(0, %(p)s - 1) AS p) h,
       LATERAL (SELECT timestamptz '2026-01-01 00:00+00' + (n / %(w)s) * interval '100 milliseconds' AS began) s
"""
_METRICS = """
INSERT INTO cerebro.catalog_metrics
SELECT %(r)s, k, e, d.name, d.lag + (1 + k %% 7 + k * 37 %% 101 / 40.0) / (1.0 + e * (1 + k %% 5)), ARRAY['accuracy'],
       ARRAY[1 - (d.lag + (1 + k %% 7 + k * 37 %% 101 / 40.0) / 12.0) / (1.0 + e * (1 + k %% 5))], e * 60.0
  FROM generate_series(1, %(c)s) AS k, generate_series(1, %(e)s) AS e,
       (VALUES ('training', 0.0), ('validation', 0.05)) AS d (name, lag)
"""


def drop_run(execute: Any, run_id: int) -> None:
    """Remove the rows of the run."""
    for table in ("metrics", "hops", "configurations", "runs"):
        execute(f"DELETE FROM cerebro.catalog_{table} WHERE run_id = %(r)s", {"r": run_id})


def main() -> None:
    """Measure, and print medians in seconds."""
    parser = argparse.ArgumentParser(description="Time of looking at runs, and its effect on them.")
    parser.add_argument("dsn", help="a database with Cerebro-DB, as a superuser")
    parser.add_argument("--only", choices=("looks", "effect"))
    parser.add_argument("--runs", type=int, default=RUNS, help="whose spans are compared")
    parser.add_argument("--epochs", type=int, default=LONG, help="of each of these runs")
    given = parser.parse_args()
    connection = psycopg2.connect(given.dsn)
    connection.autocommit = True

    def execute(sql: str, values: Any = None) -> list[tuple[Any, ...]]:
        with connection.cursor() as cursor:
            cursor.execute(sql, values)
            return list(cursor.fetchall()) if cursor.description else []

    if given.only != "effect":
        looks(given.dsn, execute)
    if given.only != "looks":
        effect(given.dsn, execute, given.runs, given.epochs)


# -- what a look takes ---------------------------------------------------------------
def looks(dsn: str, execute: Any) -> None:
    """Print how long each command takes on a large run."""
    run_id = make_run(execute)
    execute("ANALYZE")
    number = str(run_id)
    try:
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "report.html"
            board = f"SELECT * FROM cerebro.dashboard WHERE run_id = {run_id} ORDER BY rank"
            for name, work in {
                "view cerebro.dashboard": lambda: execute(board),
                "cerebro watch --once": lambda: _cerebro("watch", number, "--once", "--dsn", dsn),
                "cerebro report": lambda: _cerebro("report", number, "-o", str(file), "--dsn", dsn),
                "cerebro metrics": lambda: _cerebro("metrics", "--dsn", dsn),
                "cerebro runs": lambda: _cerebro("runs", "--dsn", dsn),
            }.items():
                taken = [_seconds(work) for _ in range(REPEATS)]
                wall, own = (median(one[place] for one in taken) for place in (0, 1))
                print(f"{name}: {wall:.2f} s, of which the program computes {own:.2f} s")
            print(f"report: {file.stat().st_size / 1e6:.2f} MB")
    finally:
        drop_run(execute, run_id)


# -- what looking takes from a run -----------------------------------------------------
def effect(dsn: str, execute: Any, runs: int, epochs: int) -> None:
    """Print what somebody who watches takes from runs."""
    execute("SET search_path = cerebro_watching, cerebro")
    execute("CREATE SCHEMA cerebro_watching")
    execute(f"CREATE ROLE {_WATCHER} SUPERUSER LOGIN")
    calls, effects, shares, began = [], [], [], []
    try:
        for statement in _WATCHED:
            execute(statement)
        _trained(dsn, execute, 1, is_watched=False)  # programs are compiled, and trainers there
        for number in range(runs):
            one = _trained(dsn, execute, epochs, is_watched=True, first=bool(number % 2))
            calls.append(one.call)
            if not one.effects:
                raise SystemExit(
                    f"--epochs: got {epochs}; allowed: enough for two spans of {_SPAN:g} s in a run"
                )
            effects += one.effects
            shares.append(one.share)
            began.append(one.start)
            print(
                f"run {number + 1}: {len(one.effects)} pairs of spans, "
                f"{100 * median(one.effects):+.2f} % of the rows a second (median); watching took "
                f"{100 * one.share:.2f} % of {cores()} processors, its start {one.start:.2f} CPU seconds",
                flush=True,
            )
        low, high = _interval(effects)
        print(
            f"effect of watching on the rows a second: {100 * mean(effects):+.2f} % "
            f"(mean of {len(effects)} pairs of {_SPAN:g} s; 95 % of means in {100 * low:+.2f} to {100 * high:+.2f} %)"
        )
        print(f"share of the processors that it took: {100 * median(shares):.2f} % (median)")
        print(f"CPU seconds until both programs have looked once: {median(began):.2f} (median)")
        print(
            f"call with wait := false: {median(calls):.3f} s (median), {max(calls):.3f} s (longest)"
        )
    finally:
        execute("DROP SCHEMA cerebro_watching CASCADE")
        execute(f"DROP ROLE {_WATCHER}")


def _interval(values: Sequence[float]) -> tuple[float, float]:
    """Bootstrap: between which 95 % of the means of samples of these lie."""
    drawn = random.Random(0)
    means = sorted(mean(drawn.choices(values, k=len(values))) for _ in range(2000))
    return means[49], means[-50]


_WATCHED = (
    """CREATE TABLE points AS
       SELECT n AS id, (n % 10)::text AS label,
              ARRAY(SELECT (n % 10) / 10.0 + sin(n * 0.7 + k * 1.3) FROM generate_series(1, 64) AS k)::real[] AS x
         FROM generate_series(1, 20000) AS n""",
    "SELECT cerebro_pack('points', 'packed', 'label', 'x', num_partitions := 4)",
    "SELECT cerebro_load_model('models', cerebro_mlp(64, ARRAY[64, 64], 10))",
    """SELECT cerebro_generate_configs('models', 'configs', ARRAY[1],
         $$ {'loss': ['sparse_categorical_crossentropy'], 'metrics': ['accuracy'],
             'optimizer_params_list': [{'optimizer': ['SGD'], 'lr': [0.003, 0.01, 0.03, 0.1]}]} $$,
         $$ {'batch_size': [32, 64]} $$)""",
)


@dataclass(frozen=True)
class _Watched:
    """Figures of a run that was watched in every other span of some seconds.

    Attributes:
        call: seconds until the call returned.
        effects: for each pair of spans the logarithm of the rows a second of the watched one to those of the
            other: its mean is not biased by noise, as that of ratios is.
        share: of the processors, that programs and their sessions took in watched spans.
        start: CPU seconds that the programs took before the first span.
    """

    call: float
    effects: list[float]
    share: float
    start: float


def _trained(
    dsn: str, execute: Any, epochs: int, *, is_watched: bool, first: bool = False
) -> _Watched:
    """Train, and measure the speed with and without watchers.

    Args:
        dsn: of the database.
        execute: runs a statement with values, and returns its rows.
        epochs: of the run.
        is_watched: whether anybody watches it.
        first: whether the first span of the run is watched.
    """
    began = time.perf_counter()
    ((run_id,),) = execute(
        "SELECT cerebro_fit_multiple('packed', 'out', 'configs', %s, metrics_compute_frequency := 1, wait := false)",
        (epochs,),
    )
    call = time.perf_counter() - began
    spans: list[_Span] = []
    start = 0.0
    if is_watched:
        with _watching(dsn, run_id) as programs:
            start = programs.used()
            spans = list(programs.spans(_status_of(execute, run_id), is_watched=first))
    execute("SELECT cerebro_wait(%s)", (run_id,))
    made = execute(
        "SELECT extract(epoch FROM finished)::float8, rows FROM cerebro.hops WHERE run_id = %s",
        (run_id,),
    )
    execute("SELECT cerebro_drop_outputs('out')")
    execute("SELECT cerebro_drop_run(%s)", (run_id,))
    rates = [
        sum(rows for moment, rows in made if one.begins <= moment < one.ends)
        / (one.ends - one.begins)
        for one in spans
    ]
    effects = [
        math.log(rates[place] / rates[place + 1]) * (1 if spans[place].is_watched else -1)
        for place in range(0, len(spans) - 1, 2)
        if rates[place] and rates[place + 1]
    ]
    used = sum(one.used for one in spans if one.is_watched)
    seconds = sum(one.ends - one.begins for one in spans if one.is_watched)
    return _Watched(call, effects, used / (cores() * seconds) if seconds else 0.0, start)


def _status_of(execute: Any, run_id: int) -> Callable[[], bool]:
    """Asks whether a run goes on."""
    query = "SELECT status = 'running' FROM cerebro.runs WHERE run_id = %s"
    return lambda: bool(execute(query, (run_id,))[0][0])


@dataclass(frozen=True)
class _Span:
    """Some seconds of a run.

    Attributes:
        begins, ends: seconds since 1970.
        used: CPU seconds of who watches, sessions included.
    """

    is_watched: bool
    begins: float
    ends: float
    used: float


@dataclass(frozen=True)
class _Programs:
    """Programs that watch, and the role of their sessions."""

    processes: Sequence[subprocess.Popen[bytes]]
    cursor: Any

    def used(self) -> float:
        """CPU seconds of the programs and of their sessions, so far."""
        self.cursor.execute(_OF_WATCHER, (_WATCHER,))
        sessions = [pid for (pid,) in self.cursor.fetchall()]
        return sum(map(own_ticks, [*(one.pid for one in self.processes), *sessions])) / TICKS

    def spans(self, goes_on: Callable[[], bool], *, is_watched: bool) -> Iterator[_Span]:
        """Spans of a run, as long as it goes on: the programs stand still in every other one.

        Pairs are turned round: watched, not, not, watched, and so on.
        """
        number = 0
        while True:
            watched = is_watched ^ ((number % 4) in (1, 2))
            for one in self.processes:
                one.send_signal(signal.SIGCONT if watched else signal.SIGSTOP)
            time.sleep(_MARGIN)  # hops that were under way
            begins, before = time.time(), self.used()
            time.sleep(_SPAN)
            if not goes_on():
                return
            yield _Span(watched, begins, time.time(), self.used() - before)
            number += 1


_WATCHER, _SPAN, _MARGIN = "cerebro_watching", 2.0, 0.2
_OF_WATCHER = "SELECT pid FROM pg_stat_activity WHERE usename = %s"


@contextmanager
def _watching(dsn: str, run_id: int) -> Iterator[_Programs]:
    """A terminal with ``cerebro watch``, and a daemon that is scraped; both have looked once.

    Args:
        dsn: of a superuser; theirs is that of a role by which their sessions are known.
        run_id: that they watch.
    """
    theirs = make_dsn(dsn, user=_WATCHER)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    ours, terminal = pty.openpty()
    size = {"COLUMNS": "160", "LINES": "45", "TERM": "xterm-256color"}
    cerebro = [sys.executable, "-c", "from cerebro_db.cli import main; main()"]
    ended, drawn, scraped = threading.Event(), threading.Event(), threading.Event()
    everybody = [
        subprocess.Popen(
            [*cerebro, "watch", str(run_id), "--dsn", theirs],
            stdin=terminal, stdout=terminal, stderr=terminal, env={**os.environ, **size},
        ),
        subprocess.Popen(
            [*cerebro, "daemon", "--dsn", theirs, "--metrics-port", str(port)],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        ),
    ]  # fmt: skip
    os.close(terminal)

    def read() -> None:
        with suppress(OSError):  # the terminal is closed
            while os.read(ours, 65536):
                drawn.set()

    def scrape() -> None:
        while not ended.wait(5 if scraped.is_set() else 0.1):
            with suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}/") as answer:
                answer.read()
                scraped.set()

    for work in (read, scrape):
        threading.Thread(target=work, daemon=True).start()
    try:
        with closing(psycopg2.connect(dsn)) as connection:
            connection.autocommit = True
            if not drawn.wait(30) or not scraped.wait(30):
                raise RuntimeError("the programs that watch have not looked")
            yield _Programs(everybody, connection.cursor())
    finally:
        ended.set()
        for one in everybody:
            one.terminate()
            one.send_signal(signal.SIGCONT)
            one.wait()
        os.close(ours)


def _cerebro(*arguments: str) -> None:
    code = "from cerebro_db.cli import main; main()"
    subprocess.run([sys.executable, "-c", code, *arguments], check=True, capture_output=True)


def _seconds(work: Any) -> tuple[float, float]:
    """Seconds on the clock, and those that processes of this one have computed."""
    began, before = time.perf_counter(), _computed()
    work()
    return time.perf_counter() - began, _computed() - before


def _computed() -> float:
    found = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in found)


if __name__ == "__main__":
    main()
