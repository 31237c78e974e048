"""Rows of a fold: every so many rows of each buffer, which are where the packing has put them at random."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cerebro_db.errors import InvalidArgument
from cerebro_db.training.fields import Fields

_MOST = 2**31 - 1


@dataclass(frozen=True)
class Fold:
    """The rows of a partition that are in a fold; a statement of predictions chooses the same (``PackedSource.fold``).

    Attributes:
        number: from 0, such that the folds take turns in the rows that are left over in partitions.
        count: of all folds.
    """

    number: int
    count: int

    def held_out(self, buffer_id: int, rows: int) -> np.ndarray:
        """Places of the rows of a buffer that are in the fold, ``int64[...]``."""
        return np.flatnonzero(self._is_held_out(buffer_id, rows))

    def kept(self, buffer_id: int, rows: int) -> np.ndarray:
        """Places of the other rows, which are trained on."""
        return np.flatnonzero(~self._is_held_out(buffer_id, rows))

    def _is_held_out(self, buffer_id: int, rows: int) -> np.ndarray:
        found: np.ndarray = (np.arange(rows) + buffer_id) % self.count == self.number
        return found


def fold_of(task: Fields, partition_key: int) -> Fold | None:
    """The fold in a task about a partition; None where there is none.

    Raises:
        InvalidArgument: it is no fold.
    """
    if not task.has("fold"):
        return None
    values = task.integers("fold", 0, _MOST, most=2)
    if len(values) != 2 or values[0] >= values[1]:
        raise InvalidArgument(
            f"fold: got {list(values)}; allowed: a number from 0, and a larger one"
        )
    number, count = values
    return Fold((number - partition_key) % count, count)
