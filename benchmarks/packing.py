"""Packing against COPY of the same rows: CPU seconds of the server and its keeper beside wall seconds.

    python -m benchmarks.packing [--dsn DSN] [--rows 200000] [--columns 64] [--repeats 5]

Without a DSN an embedded cluster is made and removed, with one a database. The server must run on this machine, as
the CPU time of its processes is read from /proc; of keepers those of this environment count.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
from collections.abc import Callable
from typing import Any

import psycopg2

from benchmarks.meter import Cost, Meter
from benchmarks.server import postmasters_of
from benchmarks.server import server as started

SOURCE, PACKED = "cerebro_bench_source", "cerebro_bench_packed"


def main() -> None:
    """Measure, and write a table in Markdown."""
    arguments = _arguments()
    with started(arguments.dsn) as running:
        costs = measure(running.dsn, arguments.rows, arguments.columns, arguments.repeats)
    sys.stdout.write(report(costs, arguments.rows, arguments.columns))


def measure(dsn: str, rows: int, columns: int, repeats: int) -> dict[str, list[Cost]]:
    """The costs of every repetition of COPY, of the first packing and of the later ones.

    The first packing of a session connects its workers and imports NumPy in each of them.
    """
    connection = psycopg2.connect(dsn)
    connection.autocommit = True
    cursor = connection.cursor()
    _make_source(cursor, rows, columns)
    meter = Meter(*postmasters_of(dsn)[0], charges_client=False)
    copy = f"COPY (SELECT x, y FROM {SOURCE}) TO STDOUT (FORMAT binary)"
    pack = f"SELECT cerebro.cerebro_pack('{SOURCE}', '{PACKED}', 'y', 'x')"
    costs: dict[str, list[Cost]] = {"COPY": [], "cerebro_pack, first": [], "cerebro_pack": []}
    for repetition in range(repeats + 1):
        with open(os.devnull, "wb") as sink:
            costs["COPY"].append(_cost(meter, lambda sink=sink: cursor.copy_expert(copy, sink)))
        name = "cerebro_pack" if repetition else "cerebro_pack, first"
        costs[name].append(_cost(meter, lambda: cursor.execute(pack)))
        cursor.execute(f"DROP TABLE {PACKED}, {PACKED}_summary")
    cursor.execute(f"DROP TABLE {SOURCE}")
    connection.close()
    return costs


def report(costs: dict[str, list[Cost]], rows: int, columns: int) -> str:
    """The medians, and how they compare with COPY."""
    lines = [
        f"{rows} rows of {columns} real numbers, {os.cpu_count()} cores, medians",
        "",
        "| | CPU s | wall s | CPU / COPY | wall / COPY |",
        "|---|---:|---:|---:|---:|",
    ]
    copy = _median(costs["COPY"])
    for name, listed in costs.items():
        cost = _median(listed)
        lines.append(
            f"| {name} | {cost.cpu:.2f} | {cost.wall:.2f} | {cost.cpu / copy.cpu:.2f} "
            f"| {cost.wall / copy.wall:.2f} |"
        )
    return "\n".join(lines) + "\n"


def _median(costs: list[Cost]) -> Cost:
    return Cost(
        wall=statistics.median(cost.wall for cost in costs),
        cpu=statistics.median(cost.cpu for cost in costs),
    )


def _make_source(cursor: Any, rows: int, columns: int) -> None:
    cursor.execute("SET max_parallel_workers_per_gather = 0; SET jit = off")
    cursor.execute(f"DROP TABLE IF EXISTS {SOURCE}, {PACKED}, {PACKED}_summary")
    cursor.execute(
        f"CREATE TABLE {SOURCE} AS SELECT i %% 10 AS y, (SELECT array_agg(random()::real) "
        "FROM generate_series(1, %s) WHERE i = i) AS x FROM generate_series(1, %s) AS i",
        (columns, rows),
    )
    cursor.execute(f"VACUUM ANALYZE {SOURCE}")
    cursor.execute("CHECKPOINT")


def _cost(meter: Meter, action: Callable[[], object]) -> Cost:
    with meter.measure() as cost:
        action()
    return cost


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dsn")
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--columns", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=5)
    return parser.parse_args()


if __name__ == "__main__":
    main()
