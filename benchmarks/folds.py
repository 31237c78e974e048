"""Cross-validation: 5 folds as one run, beside 5 fits of tables that are split and packed one by one.

    python -m benchmarks.folds [--workers 2] [--rows 20000] [--epochs 3] [--repeat 1] [--json FILE]

Both sides train the same grid of 6 on the same server, in a session each; the first run of a session, which starts the
trainers, is not measured.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks import exchange
from benchmarks.architectures import mlp
from benchmarks.machine import pin
from benchmarks.meter import Cost
from benchmarks.server import Server
from benchmarks.server import server as started
from benchmarks.workload import Workload
from benchmarks.workloads import WORKLOADS

FOLDS, PARTITIONS = 5, 4
_GRID = """
SELECT cerebro_generate_configs('nets', 'grid', ARRAY[1, 2],
    $$ {'loss': ['sparse_categorical_crossentropy'], 'metrics': [['accuracy']],
        'optimizer_params_list': [{'optimizer': ['Adam'], 'lr': [0.0003, 0.001, 0.003]}]} $$, $$ {'batch_size': [64]} $$)
"""


def measure(server: Server, workload: Workload, workers: int, epochs: int) -> dict[str, Any]:
    """Both sides: wall and CPU seconds, and the share of the one run in that of the five."""
    _load(server, workload)
    together = _timed(server, lambda cursor: _together(cursor, workers, epochs))
    apart = _timed(server, lambda cursor: _apart(cursor, workers, epochs))
    return {
        "rows": len(workload.features),
        "together": _shown(together),
        "apart": _shown(apart),
        "wall_share": round(together.wall / apart.wall, 3),
        "cpu_share": round(together.cpu / apart.cpu, 3),
    }


def _timed(server: Server, work: Any) -> Cost:
    with server.session() as cursor:
        cursor.execute(
            "SELECT cerebro_fit_multiple('warm', 'warm_out', 'grid', 1, replace := true)"
        )
        with server.meter.measure() as cost:
            work(cursor)
    return cost


def _shown(cost: Cost) -> dict[str, float]:
    return {name: round(getattr(cost, name), 2) for name in ("wall", "cpu", "others")}


def _load(server: Server, workload: Workload) -> None:
    """Rows, numbered at random, and the grid; packing is measured, as five fits need it five times."""
    shape, classes = workload.features.shape[1:], int(workload.labels.max()) + 1
    with server.session() as cursor:
        cursor.execute("CREATE TABLE rows (id serial, x real[], y integer)")
        cursor.execute("CREATE TABLE given (x real[], y integer)")
        exchange.write(cursor, "given", workload.features, workload.labels)
        cursor.execute("INSERT INTO rows (x, y) SELECT x, y FROM given")
        for units in (64, 128):
            cursor.execute(
                "SELECT cerebro_load_model('nets', %s)",
                (mlp(shape, units, units, classes=classes),),
            )
        cursor.execute(_GRID)
        cursor.execute("CREATE VIEW few AS SELECT x, y FROM rows LIMIT 500")
        cursor.execute(
            f"SELECT cerebro_pack('few', 'warm', 'y', 'x', num_partitions := {PARTITIONS})"
        )


def _together(cursor: Any, workers: int, epochs: int) -> None:
    cursor.execute(
        f"SELECT cerebro_pack('rows', 'packed', 'y', 'x', num_partitions := {PARTITIONS})"
    )
    cursor.execute(
        f"SELECT cerebro_fit_multiple('packed', 'crossed', 'grid', %s, folds := {FOLDS}, num_workers := %s)",
        (epochs, workers),
    )


def _apart(cursor: Any, workers: int, epochs: int) -> None:
    for fold in range(FOLDS):
        train, val, packed = f"train_{fold}", f"val_{fold}", f"packed_{fold}"
        for name, sign in ((train, "<>"), (val, "=")):
            cursor.execute(
                f"CREATE VIEW {name} AS SELECT x, y FROM rows WHERE id % {FOLDS} {sign} {fold}"
            )
        cursor.execute(
            f"SELECT cerebro_pack('{train}', '{packed}', 'y', 'x', num_partitions := {PARTITIONS})"
        )
        cursor.execute(
            f"SELECT cerebro_pack_validation('{val}', '{packed}_val', 'y', 'x', '{packed}')"
        )
        cursor.execute(
            f"SELECT cerebro_fit_multiple('{packed}', 'out_{fold}', 'grid', %s, validation_table := '{packed}_val', "
            "num_workers := %s)",
            (epochs, workers),
        )


def main() -> None:
    """Measure, and print the figures of each repetition."""
    arguments = _arguments()
    pin(arguments.workers)
    whole = WORKLOADS["tabular"](1.0)
    count = arguments.rows
    workload = replace(whole, features=whole.features[:count], labels=whole.labels[:count])
    results = []
    for _ in range(arguments.repeat):
        with started() as running:
            results.append(measure(running, workload, arguments.workers, arguments.epochs))
        print(json.dumps(results[-1]), flush=True)
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=2) + "\n")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.folds",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--workers", type=int, default=2, help="and processors, for both sides")
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--json", type=Path, help="where the results are written")
    return parser.parse_args()


if __name__ == "__main__":
    main()
