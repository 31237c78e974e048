"""The order of rows within a hop: from the seed, the same whether streamed or in memory.

NumPy is imported late: a driver, which only tells the salt, has its workers begin before.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np


def salt(seed: int, epoch: int, partition_key: int) -> str:
    """Text that is hashed with a buffer's id to place the buffer; SQL computes the same."""
    return f"{seed}/{epoch}/{partition_key}"


def place(salt_text: str, subepoch: int, buffer_id: int) -> str:
    """The sort key of a buffer within a pass: ``md5(salt/subepoch/buffer_id)``."""
    return hashlib.md5(
        f"{salt_text}/{subepoch}/{buffer_id}".encode(), usedforsecurity=False
    ).hexdigest()


def buffer_order(salt_text: str, subepoch: int, buffer_ids: Iterable[int]) -> list[int]:
    """Buffer ids in the order of a pass."""
    return sorted(buffer_ids, key=lambda buffer_id: place(salt_text, subepoch, buffer_id))


def row_order(
    seed: int, epoch: int, partition_key: int, subepoch: int, buffer_id: int, rows: int
) -> np.ndarray:
    """A permutation of a buffer's rows, ``int64[rows]``."""
    import numpy as np

    sequence = np.random.SeedSequence([seed, epoch, partition_key, subepoch, buffer_id])
    return np.random.Generator(np.random.PCG64(sequence)).permutation(rows)
