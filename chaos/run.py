"""Entry of ``make chaos``: ``python -m chaos`` with the installed package, not the clone's.

Root's server cannot import from a clone that its user cannot read; the code that is tested has to
be the same on both sides.
"""

from __future__ import annotations

import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path[:] = [*sys.path[1:], str(Path(__file__).resolve().parents[1])]
    from chaos.__main__ import main

    main()
