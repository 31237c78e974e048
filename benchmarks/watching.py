"""Time to look at a run, and what that takes from the run: ``python -m benchmarks.watching DSN``.

As a superuser, in a database with Cerebro-DB. ``--only looks``: commands on a run of 1,000 configurations, 20 epochs and
4 partitions that was never trained; its rows are made in the catalog, and dropped at the end. ``--only effect``: the same
run is trained again and again, every other time while ``cerebro watch`` shows it in a terminal, every two seconds, and
``cerebro daemon`` answers a scrape of Prometheus every five seconds; what takes one side longer than the other is told
for each pair. Which side comes first changes from pair to pair. Runs differ by more than watching takes; so it is also told
which share of the processors those who watch and their sessions had.
"""

from __future__ import annotations

import argparse
import os
import pty
import resource
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext, suppress
from pathlib import Path
from statistics import median
from typing import Any

import psycopg2
from psycopg2.extensions import make_dsn

from benchmarks.meter import TICKS, own_ticks
from cerebro_db.relay.machine import cores

CONFIGURATIONS, EPOCHS, PARTITIONS, WORKERS = 1000, 20, 4, 8
REPEATS = 3
# Runs in pairs, of about a minute each: starting two programs is a part of what they take.
PAIRS, LONG = 5, 160


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
    """Remove the rows again."""
    for table in ("metrics", "hops", "configurations", "runs"):
        execute(f"DELETE FROM cerebro.catalog_{table} WHERE run_id = %(r)s", {"r": run_id})


def main() -> None:
    """Measure, and print medians in seconds."""
    parser = argparse.ArgumentParser(description="Time of looking at runs, and its effect on them.")
    parser.add_argument("dsn", help="a database with Cerebro-DB, as a superuser")
    parser.add_argument("--only", choices=("looks", "effect"))
    parser.add_argument(
        "--pairs", type=int, default=PAIRS, help="of runs, with and without watching"
    )
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
        effect(given.dsn, execute, given.pairs, given.epochs)


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
def effect(dsn: str, execute: Any, pairs: int, epochs: int) -> None:
    """Print how long a run takes with and without somebody who watches it."""
    execute("SET search_path = cerebro_watching, cerebro")
    execute("CREATE SCHEMA cerebro_watching")
    execute(f"CREATE ROLE {_WATCHER} SUPERUSER LOGIN")
    try:
        for statement in _WATCHED:
            execute(statement)
        _trained(execute, 1, None)  # programs are compiled, and trainers there
        ratios, shares, calls = [], [], []
        for pair in range(pairs):
            taken, before, sessions = {}, _computed(), _Sessions(dsn)
            for watched in (False, True) if pair % 2 == 0 else (True, False):
                call, taken[watched] = _trained(execute, epochs, sessions if watched else None)
                calls.append(call)
            ratios.append(taken[True] / taken[False])
            programs = _computed() - before
            shares.append((programs + sessions.seconds) / (cores() * taken[True]))
            print(
                f"pair {pair + 1}: {taken[False]:.2f} s alone, {taken[True]:.2f} s watched, "
                f"{100 * (ratios[-1] - 1):+.2f} %; the programs that watched computed {programs:.2f} s, "
                f"their sessions {sessions.seconds:.2f} s: {100 * shares[-1]:.2f} % of {cores()} processors",
                flush=True,
            )
        print(f"effect of watching on the run: {100 * (median(ratios) - 1):+.2f} % (median)")
        print(f"share of the processors that it took: {100 * median(shares):.2f} % (median)")
        print(
            f"call with wait := false: {median(calls):.3f} s (median), {max(calls):.3f} s (longest)"
        )
    finally:
        execute("DROP SCHEMA cerebro_watching CASCADE")
        execute(f"DROP ROLE {_WATCHER}")


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


class _Sessions:
    """CPU seconds of the sessions of whoever watches, which are on this machine; short ones are not seen.

    Args:
        dsn: of the database.

    Attributes:
        dsn: with a role of their own, by which they are known.
    """

    def __init__(self, dsn: str) -> None:
        self.dsn, self._ticks = make_dsn(dsn, user=_WATCHER), dict[int, int]()

    @property
    def seconds(self) -> float:
        """What they have used until they were last seen."""
        return sum(self._ticks.values()) / TICKS

    def follow(self, ended: threading.Event) -> None:
        """See what they use, until that ends."""
        with closing(psycopg2.connect(self.dsn)) as connection, connection.cursor() as cursor:
            while not ended.wait(_BETWEEN_SECONDS):
                cursor.execute(_OF_WATCHER, (_WATCHER,))
                self._ticks.update({pid: own_ticks(pid) for (pid,) in cursor.fetchall()})
                connection.rollback()


_WATCHER, _BETWEEN_SECONDS = "cerebro_watching", 2.0
_OF_WATCHER = "SELECT pid FROM pg_stat_activity WHERE usename = %s AND pid <> pg_backend_pid()"


def _trained(execute: Any, epochs: int, sessions: _Sessions | None) -> tuple[float, float]:
    """Seconds until the call returns, and those of its run, as the catalog has them.

    Args:
        execute: runs a statement with values, and returns its rows.
        epochs: of the run.
        sessions: of those who watch the run, where anybody does.
    """
    began = time.perf_counter()
    ((run_id,),) = execute(
        "SELECT cerebro_fit_multiple('packed', 'out', 'configs', %s, metrics_compute_frequency := 1, wait := false)",
        (epochs,),
    )
    call = time.perf_counter() - began
    with nullcontext() if sessions is None else _watching(sessions, run_id):
        execute("SELECT cerebro_wait(%s)", (run_id,))
    ((seconds,),) = execute(
        "SELECT extract(epoch FROM finished - started)::float8 FROM cerebro.runs WHERE run_id = %s",
        (run_id,),
    )
    execute("SELECT cerebro_drop_outputs('out')")
    execute("SELECT cerebro_drop_run(%s)", (run_id,))
    return call, float(seconds)


@contextmanager
def _watching(sessions: _Sessions, run_id: int) -> Iterator[None]:
    """A terminal with ``cerebro watch``, and a daemon that is scraped."""
    dsn = sessions.dsn
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    ours, terminal = pty.openpty()
    size = {"COLUMNS": "160", "LINES": "45", "TERM": "xterm-256color"}
    cerebro = [sys.executable, "-c", "from cerebro_db.cli import main; main()"]
    ended = threading.Event()
    everybody = [
        subprocess.Popen(
            [*cerebro, "watch", str(run_id), "--dsn", dsn],
            stdin=terminal, stdout=terminal, stderr=terminal, env={**os.environ, **size},
        ),
        subprocess.Popen(
            [*cerebro, "daemon", "--dsn", dsn, "--metrics-port", str(port)],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        ),
    ]  # fmt: skip
    os.close(terminal)

    def read() -> None:
        with suppress(OSError):  # the terminal is closed
            while os.read(ours, 65536):
                pass

    def scrape() -> None:
        while not ended.wait(5):
            with suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}/") as answer:
                answer.read()

    for work in (read, scrape, lambda: sessions.follow(ended)):
        threading.Thread(target=work, daemon=True).start()
    try:
        yield
    finally:
        ended.set()
        for one in everybody:
            one.terminate()
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
