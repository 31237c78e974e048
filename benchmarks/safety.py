"""What durability costs, and how soon a run stops: on the workloads tabular and images.

    python -m benchmarks.safety [tabular] [images] [--repeats 3] [--workers 2] [--scale 1]

Each workload is trained by one warm session with durability := 'hop', with 'epoch', and with
'epoch' on a server that waits for no disk at all (fsync, synchronous_commit and full_page_writes
off), one after another, so many times; the medians are compared. Then runs are stopped in several
ways, and the seconds are counted until no worker is at work any more. Writes tables in Markdown.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import psycopg2

from benchmarks import database, machine
from benchmarks.database import Tables
from benchmarks.server import Server, server
from benchmarks.workload import Workload
from benchmarks.workloads import WORKLOADS

SIDES = ("hop", "epoch", "nothing lasts")
# A stop hits a run in which hops are under way; several, because it hits at some moment.
_STOPS, _HOPS_BEFORE, _PATIENCE = 2, 6, 120.0
_UNSAFE = ("fsync", "synchronous_commit", "full_page_writes")


def main() -> None:
    """Measure, and write tables."""
    arguments = _arguments()
    machine.pin(arguments.workers)
    costs, stops = {}, {}
    with server() as running:
        for name in arguments.workloads or ["tabular", "images"]:
            workload = WORKLOADS[name](arguments.scale)
            tables = database.load(running, workload)
            database.pack(running, tables, workload)
            sides = _sides(running, tables, workload, arguments.workers, arguments.repeats)
            costs[name] = {side: statistics.median(times) for side, times in sides.items()}
            stops[name] = _stops(running, tables, workload, arguments.workers)
            database.drop(running, tables)
    sys.stdout.write(_costs_table(costs) + "\n" + _stops_table(stops))


def _sides(
    running: Server, tables: Tables, workload: Workload, workers: int, repeats: int
) -> dict[str, list[float]]:
    """Wall-clock seconds of every run."""
    found: dict[str, list[float]] = {side: [] for side in SIDES}
    with running.session() as cursor:
        _train(cursor, tables, workload, workers, "hop")  # makes the workers warm
        for _ in range(repeats):
            for side in SIDES:
                with _server_without_disk(cursor, side == "nothing lasts"):
                    durability = "hop" if side == "hop" else "epoch"
                    seconds = _train(cursor, tables, workload, workers, durability)
                found[side].append(seconds)
    return found


def _train(cursor: Any, tables: Tables, workload: Workload, workers: int, durability: str) -> float:
    cursor.execute("CHECKPOINT")
    began = time.monotonic()
    cursor.execute(_call(tables, workload, workers) + f", durability := '{durability}')")
    seconds = time.monotonic() - began
    name = tables.output(0)
    cursor.execute(f"DROP TABLE {name}, {name}_info, {name}_summary, {name}_states")
    return seconds


def _call(tables: Tables, workload: Workload, workers: int) -> str:
    return (
        f"SELECT cerebro_fit_multiple('{tables.packed}', '{tables.output(0)}', "
        f"'{tables.configurations}', {workload.epochs}, num_workers := {workers}"
    )


@contextmanager
def _server_without_disk(cursor: Any, wanted: bool) -> Iterator[None]:
    if not wanted:
        yield
        return
    for name in _UNSAFE:
        cursor.execute(f"ALTER SYSTEM SET {name} = off")
    cursor.execute("SELECT pg_reload_conf()")
    try:
        yield
    finally:
        for name in _UNSAFE:
            cursor.execute(f"ALTER SYSTEM RESET {name}")
        cursor.execute("SELECT pg_reload_conf()")


def _stops(
    running: Server, tables: Tables, workload: Workload, workers: int
) -> dict[str, list[float]]:
    """Seconds until no worker was at work any more, by the way in which a run was stopped."""
    ways: dict[str, Callable[[Any, int, int], None]] = {
        "cerebro_cancel": lambda cursor, run_id, pid: cursor.execute(
            "SELECT cerebro_cancel(%s)", (run_id,)
        ),
        "cerebro_pause": lambda cursor, run_id, pid: cursor.execute(
            "SELECT cerebro_pause(%s)", (run_id,)
        ),
        "pg_cancel_backend, Ctrl-C, statement_timeout": lambda cursor, run_id, pid: cursor.execute(
            "SELECT pg_cancel_backend(%s)", (pid,)
        ),
    }
    call = _call(tables, workload, workers) + ")"
    with running.session() as caller:  # its workers stay warm from one run to the next
        return {
            name: [_stopped(running, caller.connection, call, stop) for _ in range(_STOPS)]
            for name, stop in ways.items()
        }


def _stopped(
    running: Server, caller: Any, call: str, stop: Callable[[Any, int, int], None]
) -> float:
    pid = caller.info.backend_pid
    thread = threading.Thread(target=_run, args=(caller, call))
    watcher = psycopg2.connect(running.dsn)
    watcher.autocommit = True
    with watcher.cursor() as cursor:
        thread.start()
        run_id = _wait_for(cursor, "SELECT max(run_id) FROM cerebro.runs WHERE status = 'running'")
        hops = f"SELECT count(*) >= {_HOPS_BEFORE} FROM cerebro.hops WHERE run_id = {run_id}"
        _wait_for(cursor, hops)
        began = time.monotonic()
        stop(cursor, run_id, pid)
        _wait_for(cursor, _NOBODY_WORKS.format(pid=pid))
        seconds = time.monotonic() - began
        thread.join()
        cursor.execute("SELECT cerebro_drop_run(%s)", (run_id,))
    watcher.close()
    return seconds


_NOBODY_WORKS = (
    "SELECT count(*) = 0 FROM pg_stat_activity WHERE state = 'active' "
    "AND (application_name = 'cerebro worker' OR pid = {pid})"
)


def _run(connection: Any, call: str) -> None:
    with suppress(psycopg2.Error):
        connection.cursor().execute(call)


def _wait_for(cursor: Any, query: str) -> Any:
    deadline = time.monotonic() + _PATIENCE
    while time.monotonic() < deadline:
        cursor.execute(query)
        value = cursor.fetchone()[0]
        if value:
            return value
        time.sleep(0.02)
    raise TimeoutError(query)


def _costs_table(costs: dict[str, dict[str, float]]) -> str:
    lines = ["| durability | " + " | ".join(costs) + " |", "|---|" + "---:|" * len(costs)]
    for side in SIDES:
        cells = []
        for sides in costs.values():
            share = sides[side] / sides["nothing lasts"] - 1
            cells.append(f"{sides[side]:.2f} s ({share:+.1%})")
        lines.append(f"| {side} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _stops_table(stops: dict[str, dict[str, list[float]]]) -> str:
    names = list(stops)
    lines = [
        f"| longest of {_STOPS}, seconds | " + " | ".join(names) + " |",
        "|---|" + "---:|" * len(names),
    ]
    for way in next(iter(stops.values())):
        cells = [f"{max(stops[name][way]):.2f}" for name in names]
        lines.append(f"| {way} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.safety",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("workloads", nargs="*", choices=["tabular", "images", []])
    parser.add_argument("--repeats", type=int, default=3, help="of every side")
    parser.add_argument("--workers", type=int, default=2, help="and processors")
    parser.add_argument("--scale", type=float, default=1.0, help="of the rows")
    return parser.parse_args()


if __name__ == "__main__":
    main()
