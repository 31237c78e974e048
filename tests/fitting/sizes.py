"""Sizes of the packed table of these tests, by what the server can.

Not of the conftest, which pytest may import before it knows which server that is.
"""

from __future__ import annotations

from servers import partitions

PARTITIONS = partitions(4)
ROWS_TRAINED = 120
ROWS_EACH = ROWS_TRAINED // PARTITIONS  # 2, 3 or 4 partitions are all alike
