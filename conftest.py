"""Where the package is installed as a copy, tests find the other packages of this clone all the same."""

from __future__ import annotations

import sys
from pathlib import Path

# At the end: the package that is installed counts, not the one beside this file.
sys.path.append(str(Path(__file__).parent))
