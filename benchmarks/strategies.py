"""Compare strategies where there are few models: one on 4 partitions, and three.

    python -m benchmarks.strategies [--scale 1] [--workers 2] [--repeat 3] [--epochs 4] [--strategies hopper,auto]
                                    [--cases one-images,one-tabular,three-images] [--json FILE] [--dsn DSN | --server segments]

Each case is trained by each strategy in turn, so many times in one server, after one run of each that is not
counted: then trainers are warm, as they are in a session that goes on. Shown are medians: the wall seconds of
the whole call, and of its hops; the share of the time in which workers had nothing to do; the accuracy on the
training table after the last epoch; and what auto has chosen.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.database import Tables, load, pack
from benchmarks.hops import idle_share, read, span
from benchmarks.machine import describe, pin
from benchmarks.server import Server, server
from benchmarks.workload import Workload
from benchmarks.workloads import images, tabular
from cerebro_db.decide.strategies import STRATEGIES

_VARIABLE = "CEREBRO_GREENPLUM_DSN"
_PARTITIONS = 4
_FIT = (
    "SELECT cerebro_fit_multiple(%s, %s, %s, %s, strategy := %s, strategy_params := %s, "
    "num_workers := %s, metrics_compute_frequency := %s)"
)
_CHOICE = (
    "SELECT (SELECT max(group_size) FROM cerebro._plan WHERE run_id = r.run_id), r.num_workers "
    "FROM cerebro.runs r WHERE r.run_id = %s"
)


@dataclass(frozen=True)
class Case:
    """Workload of one comparison.

    Attributes:
        models: how many.
        workers: how many are asked for; None for as many as the strategy takes. So many processors are
            what ``auto`` reckons with then, whatever the machine has.
    """

    name: str
    workload: str
    models: int
    workers: int | None = None


CASES = {
    one.name: one
    for one in (
        Case("one-images", "images", 1),
        Case("one-tabular", "tabular", 1),
        Case("three-images", "images", 3),
        Case("three-images-on-4", "images", 3, _PARTITIONS),
    )
}
_WORKLOADS = {"images": images.workload, "tabular": tabular.workload}


@dataclass(frozen=True)
class Figures:
    """Figures of one run; seconds, and shares of 1."""

    wall: float
    hops: float
    idle: float
    accuracy: float
    group: int
    workers: int


def measure(
    running: Server, case: Case, strategies: Sequence[str], scale: float, epochs: int, repeat: int
) -> Iterator[tuple[str, Figures]]:
    """Train a case by each strategy in turn; yields strategy and figures of each run that counts."""
    rates = (0.0003, 0.001, 0.003)[3 - case.models :] if case.models > 1 else (0.001,)
    workload: Workload = replace(
        _WORKLOADS[case.workload](scale),
        learning_rates=rates,
        batch_sizes=(256,),
        partitions=running.segments or _PARTITIONS,
        epochs=epochs,
    )
    workload = replace(workload, name=case.name.replace("-", "_"))
    tables = load(running, workload)
    pack(running, tables, workload)
    with running.session() as cursor:
        for number in range(repeat + 1):
            for strategy in strategies:
                figures = _train(cursor, running, tables, case, strategy, epochs)
                if number:
                    yield strategy, figures
        cursor.execute(f"DROP TABLE {tables.source}, {tables.packed}, {tables.packed}_summary")


def _train(
    cursor: Any, running: Server, tables: Tables, case: Case, strategy: str, epochs: int
) -> Figures:
    name = tables.output(0)
    is_told = STRATEGIES[strategy].chooses_groups and case.workers is not None
    given = (
        tables.packed, name, tables.configurations, epochs, strategy,
        f"processors={case.workers}" if is_told else None, case.workers, epochs,
    )  # fmt: skip
    with running.meter.measure() as cost:
        cursor.execute(_FIT, given)
        ((run_id,),) = cursor.fetchall()
    hops = read(cursor, run_id)
    cursor.execute(_CHOICE, (run_id,))
    group, workers = cursor.fetchone()
    cursor.execute(f"SELECT max(training_metrics[1]) FROM {name}_info")
    accuracy = float(cursor.fetchone()[0])
    ends = ("", "_info", "_summary", "_states", "_history")
    cursor.execute(f"DROP TABLE {', '.join(name + end for end in ends)}")
    return Figures(cost.wall, span(hops), idle_share(hops), accuracy, group, workers)


def show(case: str, found: dict[str, list[Figures]]) -> dict[str, Any]:
    """A table of medians; returns all figures as plain values."""
    print(
        f"\n{case}\n\n| strategy | wall s | hops s | faster | idle | accuracy | group | workers |"
    )
    print("|---|---:|---:|---:|---:|---:|---:|---:|")
    middle = {
        strategy: {
            key: statistics.median(asdict(one)[key] for one in runs) for key in asdict(runs[0])
        }
        for strategy, runs in found.items()
    }
    first = next(iter(middle.values()))
    for strategy, one in middle.items():
        print(
            f"| {strategy} | {one['wall']:.2f} | {one['hops']:.2f} | {first['hops'] / one['hops']:.2f} "
            f"| {100 * one['idle']:.1f} % | {one['accuracy']:.4f} | {one['group']:.0f} "
            f"| {one['workers']:.0f} |"
        )
    return {strategy: [asdict(one) for one in runs] for strategy, runs in found.items()}


def main() -> None:
    """Measure, and show tables."""
    arguments = _arguments()
    pin(arguments.workers)
    dsn = arguments.dsn or (os.environ[_VARIABLE] if arguments.server == "segments" else None)
    results: dict[str, Any] = {}
    with server(dsn) as running:
        results["machine"] = describe(running.version())
        for name in arguments.cases:
            found: dict[str, list[Figures]] = {}
            for strategy, figures in measure(
                running,
                CASES[name],
                arguments.strategies,
                arguments.scale,
                arguments.epochs,
                arguments.repeat,
            ):
                found.setdefault(strategy, []).append(figures)
            results[name] = show(name, found)
            if arguments.json:
                arguments.json.write_text(json.dumps(results, indent=2) + "\n")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.strategies",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--scale", type=float, default=1.0, help="of the rows")
    parser.add_argument("--workers", type=int, default=2, help="processors of everything")
    parser.add_argument("--repeat", type=int, default=3, help="runs that count, of each strategy")
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--strategies", type=_listed, default=["hopper", "auto"])
    parser.add_argument("--cases", type=_cases, default=list(CASES), help=", ".join(CASES))
    given = parser.add_mutually_exclusive_group()
    given.add_argument("--dsn", help="of a superuser, on this machine")
    given.add_argument("--server", choices=["own", "segments"], default="own")
    parser.add_argument("--json", type=Path, help="where the results are written")
    return parser.parse_args()


def _listed(text: str) -> list[str]:
    return text.split(",")


def _cases(text: str) -> list[str]:
    if unknown := set(_listed(text)) - set(CASES):
        raise argparse.ArgumentTypeError(f"got {', '.join(sorted(unknown))}")
    return _listed(text)


if __name__ == "__main__":
    main()
