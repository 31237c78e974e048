"""Cost of durability, and time until a run stops: on the workloads tabular and images.

    python -m benchmarks.safety [tabular] [images] [--workers 2] [--scale 1]

Each workload is trained with durability := 'hop' and with 'epoch'. From the hops comes the share of
the workers' time that it takes to write states and their rows, and to wait between hops: that for
the commit of the one before, and for the driver. Without any durability some of this would
remain, so it is more than durability costs. Then runs are stopped in several ways, and the seconds are
counted until no worker is at work any more. Writes tables in Markdown.
"""

from __future__ import annotations

import argparse
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import psycopg2

from benchmarks import database, machine
from benchmarks.database import Tables
from benchmarks.server import Server, server
from benchmarks.workload import Workload
from benchmarks.workloads import WORKLOADS

DURABILITIES = ("hop", "epoch")
# A stop hits a run in which hops are under way; several, because it hits at some moment.
_STOPS, _HOPS_BEFORE, _PATIENCE = 2, 6, 120.0


def main() -> None:
    """Measure, and write tables."""
    arguments = _arguments()
    machine.pin(arguments.workers)
    costs: dict[str, dict[str, tuple[float, float]]] = {}
    stops: dict[str, dict[str, list[float]]] = {}
    with server() as running:
        for name in arguments.workloads or ["tabular", "images"]:
            workload = WORKLOADS[name](arguments.scale)
            tables = database.load(running, workload)
            database.pack(running, tables, workload)
            costs[name] = _costs(running, tables, workload, arguments.workers)
            stops[name] = _stops(running, tables, workload, arguments.workers)
            database.drop(running, tables)
    sys.stdout.write(_costs_table(costs) + "\n" + _stops_table(stops))


def _costs(
    running: Server, tables: Tables, workload: Workload, workers: int
) -> dict[str, tuple[float, float]]:
    """Seconds of a run, and the share of the workers' time that is not for reading and training."""
    found = {}
    with running.session() as cursor:
        for durability in DURABILITIES:
            began = time.monotonic()
            cursor.execute(_call(tables, workload, workers) + f", durability := '{durability}')")
            seconds, ((run_id,),) = time.monotonic() - began, cursor.fetchall()
            cursor.execute(_SHARE, (run_id,))
            found[durability] = (seconds, float(cursor.fetchone()[0]))
            name = tables.output(0)
            cursor.execute(f"DROP TABLE {name}, {name}_info, {name}_summary, {name}_states")
    return found


# What a worker waited before its first hop is the time until there was work.
_SHARE = """
SELECT sum(written + CASE WHEN first THEN 0 ELSE waited END)
       / sum(written + read + trained + CASE WHEN first THEN 0 ELSE waited END)
  FROM (SELECT h.*, row_number() OVER (PARTITION BY worker ORDER BY started) = 1 AS first
          FROM cerebro.hops h WHERE run_id = %s) AS hops
"""


def _call(tables: Tables, workload: Workload, workers: int) -> str:
    return (
        f"SELECT cerebro_fit_multiple('{tables.packed}', '{tables.output(0)}', "
        f"'{tables.configurations}', {workload.epochs}, num_workers := {workers}"
    )


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


def _costs_table(costs: dict[str, dict[str, tuple[float, float]]]) -> str:
    lines = ["| durability | " + " | ".join(costs) + " |", "|---|" + "---:|" * len(costs)]
    for durability in DURABILITIES:
        cells = [
            f"{share:.2%} of {seconds:.0f} s"
            for seconds, share in (sides[durability] for sides in costs.values())
        ]
        lines.append(f"| {durability} | " + " | ".join(cells) + " |")
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
    parser.add_argument("--workers", type=int, default=2, help="and processors")
    parser.add_argument("--scale", type=float, default=1.0, help="of the rows")
    return parser.parse_args()


if __name__ == "__main__":
    main()
