"""Measure Cerebro-DB against its peers.

    python -m benchmarks [WORKLOAD ...] [--scale 1] [--workers 2] [--json FILE] [--repeat 1] [--seeds 5] [--no-export] [--dsn DSN | --server segments]

Without names, everything: toy, tabular, images, mixed, packing, predict, search. A server of its own is started in a
temporary folder and removed at the end. With --dsn a server on this machine is used that runs already, with
--server segments the one that CEREBRO_GREENPLUM_DSN names; a database of its own is made there and removed at the
end. Where there are segments, each is a partition, and only the first four are measured unless others are named.
CEREBRO_MNIST names a folder with MNIST's test images
(t10k-images-idx3-ubyte.gz, t10k-labels-idx1-ubyte.gz); without it the images are synthetic.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
from pathlib import Path
from typing import Any

from benchmarks import report, suite

VARIABLE = "CEREBRO_GREENPLUM_DSN"


def main() -> None:
    """Measure, and show tables."""
    arguments = _arguments()
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    logging.getLogger("benchmarks").setLevel(logging.INFO)
    dsn = arguments.dsn or _dsn(arguments.server)
    names = arguments.workloads or (suite.NAMES if arguments.server == "own" else suite.WORKLOADS)

    def keep(results: dict[str, Any]) -> None:
        if arguments.json:
            arguments.json.write_text(json.dumps(results, indent=2) + "\n")

    results = suite.run(
        names,
        arguments.scale,
        arguments.workers,
        keep,
        dsn,
        not arguments.no_export,
        arguments.repeat,
        arguments.seeds,
    )
    report.show(results)


def _dsn(server: str) -> str | None:
    """DSN of a server that runs already; None for one of its own."""
    if server == "own":
        return None
    if VARIABLE not in os.environ:
        raise SystemExit(f"{VARIABLE} names no cluster with segments")
    return os.environ[VARIABLE]


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("workloads", nargs="*", choices=[*suite.NAMES, []], metavar="WORKLOAD")
    parser.add_argument("--scale", type=float, default=1.0, help="of the rows (toy: epochs)")
    parser.add_argument("--workers", type=int, help="and processors, for every side; default: 2")
    given = parser.add_mutually_exclusive_group()
    given.add_argument("--dsn", help="of a superuser, on this machine")
    given.add_argument("--server", choices=["own", "segments"], default="own")
    parser.add_argument("--no-export", action="store_true", help="leave out the longest side")
    parser.add_argument(
        "--repeat", type=int, default=1, help="turns of Cerebro-DB and the floor; medians count"
    )
    parser.add_argument("--seeds", type=int, default=suite.SEEDS, help="of each method of search")
    parser.add_argument("--json", type=Path, help="where the results are written")
    found = parser.parse_args()
    return found


if __name__ == "__main__":
    main()
