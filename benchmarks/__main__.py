"""Measure Cerebro-DB against its peers.

    python -m benchmarks [WORKLOAD ...] [--scale 1] [--workers 2] [--json FILE]

Without names, everything: toy, tabular, images, mixed, packing, predict. A server of its own is started in a
temporary folder and removed at the end. CEREBRO_MNIST names a folder with MNIST's test images
(t10k-images-idx3-ubyte.gz, t10k-labels-idx1-ubyte.gz); without it the images are synthetic.
"""

from __future__ import annotations

import argparse
import json
import logging
from pathlib import Path
from typing import Any

from benchmarks import report, suite


def main() -> None:
    """Measure, and show tables."""
    arguments = _arguments()
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    logging.getLogger("benchmarks").setLevel(logging.INFO)
    names = arguments.workloads or suite.NAMES

    def keep(results: dict[str, Any]) -> None:
        if arguments.json:
            arguments.json.write_text(json.dumps(results, indent=2) + "\n")

    results = suite.run(names, arguments.scale, arguments.workers, keep)
    report.show(results)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("workloads", nargs="*", choices=[*suite.NAMES, []], metavar="WORKLOAD")
    parser.add_argument("--scale", type=float, default=1.0, help="of the rows (toy: epochs)")
    parser.add_argument("--workers", type=int, default=2, help="and processors, for every side")
    parser.add_argument("--json", type=Path, help="where the results are written")
    return parser.parse_args()


if __name__ == "__main__":
    main()
