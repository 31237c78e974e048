"""Entry of ``make bench``: ``python -m benchmarks``, or of ``ARGS=tables`` ``python -m benchmarks.automl``, with the installed package, not the clone's.

Root's server cannot import from a clone that its user cannot read; a benchmark has to use the same
code on both sides.
"""

from __future__ import annotations

import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path[:] = [*sys.path[1:], str(Path(__file__).resolve().parents[1])]
    if sys.argv[1:2] == ["tables"]:
        from benchmarks.automl.__main__ import main as tables

        tables(sys.argv[2:])
    else:
        from benchmarks.__main__ import main

        main()
