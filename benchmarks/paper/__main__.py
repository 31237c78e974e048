"""Compares strategies on one machine, and writes docs/comparison.md.

    python -m benchmarks.paper --json FILE [--scale 1] [--workers 2] [--strategies hopper,...] [--cases images,...]
                               [--only-document]

Every case is trained by every strategy, in one server, after a run of one epoch that is not counted: so programs are
compiled and trainers there. Each trains four models on four partitions with four workers, whatever the processors; and
makes each update from as many rows. "make paper" draws the pictures too.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import mean
from typing import Any

from benchmarks.machine import describe, pin
from benchmarks.markdown import table
from benchmarks.network.figures import Net
from benchmarks.network.figures import measure as measured_over_network
from benchmarks.paper.cases import PARTITIONS, ROWS, STRATEGIES, Case, Strategy, cases
from benchmarks.paper.measure import Figures, best, first_at, load, moved, same_bits, train
from benchmarks.paper.page import write
from benchmarks.server import Server, server

_NO_NETWORK = {"why_not": "no network was measured"}
# Below what hopping reaches.
_TARGET = 0.005
# Rows of the runs that are made twice, and compared.
_TWICE_SCALE = 0.02


def main() -> None:
    """Measure, and write."""
    given = _arguments()
    if given.only_document:
        write(json.loads(given.json.read_text()))
        return
    pin(given.workers)
    chosen = [one for one in STRATEGIES if given.strategies is None or one.name in given.strategies]
    with server(given.dsn) as running:
        results: dict[str, Any] = {
            "machine": describe(running.version()), "scale": given.scale, "cases": [],
        }  # fmt: skip
        for case in cases(given.scale):
            if given.cases is None or case.workload.name in given.cases:
                results["cases"].append(_compared(running, case, chosen))
                _keep(given.json, results)  # it takes long, and may be stopped
        results["same_bits"] = _twice(running, chosen)
    results["network"] = _NO_NETWORK if given.no_network else _over_network(results["cases"])
    _keep(given.json, results)
    if given.document:
        write(results)


def _keep(file: Path, results: dict[str, Any]) -> None:
    file.write_text(json.dumps(results, indent=1) + "\n")


def _compared(running: Server, case: Case, chosen: Sequence[Strategy]) -> dict[str, Any]:
    """All strategies on one case."""
    work, tables = case.workload, load(running, case)
    print(f"\n{case.title}", flush=True)
    found: dict[str, Figures] = {}
    with running.session() as cursor:
        cursor.execute("SET client_min_messages = warning")
        for strategy in chosen:
            train(cursor, running, tables, strategy, 1, PARTITIONS)
            figures = train(cursor, running, tables, strategy, work.epochs, PARTITIONS)
            found[strategy.name] = figures
            print(
                f"  {strategy.name}: {figures.wall:.1f} s, {figures.rows_per_second:,.0f} rows/s, "
                f"idle {100 * figures.idle:.1f} %, best {100 * best(list(figures.curves.values())):.2f} %",
                flush=True,
            )
    rows = len(work.features) - case.held_out
    first = next(iter(found.values()))
    goal = best(list(first.curves.values())) - _TARGET
    data = rows * 4.0 * work.features[0].size
    models = len(work.learning_rates)
    return {
        "title": case.title, "name": work.name, "data": work.data, "data_bytes": data, "rows": rows,
        "held_out": case.held_out, "models": models, "rates": work.learning_rates,
        "epochs": work.epochs, "state_bytes": first.state_bytes, "weight_bytes": first.weight_bytes,
        "target": goal,
        "strategies": {
            one.name: _told(one, found[one.name], goal, rows, data, models) for one in chosen
        },
    }  # fmt: skip


def _told(
    strategy: Strategy, figures: Figures, goal: float, rows: int, data: float, models: int
) -> dict[str, Any]:
    curves = list(figures.curves.values())
    epochs = max(point[0] for curve in curves for point in curve)
    so_far = [best([[point for point in curve if point[0] <= n] for curve in curves]) for n in range(1, epochs + 1)]  # fmt: skip
    return {
        **figures.to_json(),
        "exchanges": strategy.exchanges,
        "best": best(curves),
        "mean_best": mean(so_far),
        "reached": first_at(curves, goal),
        "moved": moved(
            strategy, figures.state_bytes, figures.weight_bytes, rows, data, models
        ),
    }  # fmt: skip


def _over_network(compared: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Exchanges of the strategies over an emulated network; gradients take as long as they did here."""
    nets, step_ms = {}, {}
    for case in compared:
        partition = int(case["data_bytes"] / PARTITIONS)
        nets[case["name"]] = Net(int(case["weight_bytes"] / 4), partition)
        first = next(iter(case["strategies"].values()))
        a_core = first["rows_per_second"] / len(os.sched_getaffinity(0))
        step_ms[case["name"]] = 1000 * ROWS / PARTITIONS / a_core
    return measured_over_network(nets, step_ms=step_ms)


def _twice(running: Server, chosen: Sequence[Strategy]) -> dict[str, bool]:
    """True if two runs of a small table are equal to the bit."""
    small = next(case for case in cases(_TWICE_SCALE) if case.workload.name == "tabular")
    case = Case(small.title, replace(small.workload, name="twice"))
    tables = load(running, case)
    with running.session() as cursor:
        cursor.execute("SET client_min_messages = warning")
        found = {one.name: same_bits(cursor, tables, one, PARTITIONS) for one in chosen}
    rows = [(name, "yes" if same else "no") for name, same in found.items()]
    print("\n" + table(("strategy", "two runs, same bits"), rows), flush=True)
    return found


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.paper",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--json", type=Path, required=True, help="where the results are written")
    parser.add_argument("--scale", type=float, default=1.0, help="of the rows")
    parser.add_argument("--workers", type=int, default=2, help="processors of everything")
    parser.add_argument("--strategies", type=_listed, help="by their names in the tables")
    parser.add_argument("--cases", type=_listed, help="images, tabular, larger")
    parser.add_argument("--dsn", help="of a superuser, on this machine")  # fmt: skip
    parser.add_argument("--no-network", action="store_true", help="no emulated network")
    parser.add_argument("--document", action="store_true", help="write docs/comparison.md")
    parser.add_argument("--only-document", action="store_true", help="write it from the file, and measure nothing")  # fmt: skip
    return parser.parse_args()


def _listed(text: str) -> list[str]:
    return [one.strip() for one in text.split(";" if ";" in text else ",")]


if __name__ == "__main__":
    main()
