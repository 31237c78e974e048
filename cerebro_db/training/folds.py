"""Rows of a fold: every so many rows of each buffer, which are where the packing has put them at random; or those that a task names."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
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
        found: np.ndarray = turns(buffer_id, rows, self.count) == self.number
        return found


def turns(buffer_id: int, rows: int, count: int) -> np.ndarray:
    """The turn of each row of a buffer, ``int64[rows]``: its fold, less the number of its partition."""
    found: np.ndarray = (np.arange(rows) + buffer_id) % count
    return found


@dataclass(frozen=True)
class NamedRows:
    """The rows of a partition that a training, or a score, is about.

    Attributes:
        of_buffers: for each buffer which of its rows.
    """

    of_buffers: Mapping[int, np.ndarray]

    def kept(self, buffer_id: int, rows: int) -> np.ndarray:
        """Places of these rows of a buffer."""
        return np.flatnonzero(self.of_buffers[buffer_id])

    held_out = kept


def bits_of(mask: np.ndarray) -> str:
    """Text of which rows are meant, a bit for each."""
    return base64.b64encode(np.packbits(mask, bitorder="little").tobytes()).decode()


def _named_rows(text: str, rows_of: Mapping[int, int]) -> NamedRows:
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        data = b""
    ends = np.cumsum(list(rows_of.values()))
    total = int(ends[-1]) if len(ends) else 0
    if len(data) != -(-total // 8):
        raise InvalidArgument(
            f"fold_rows: got {len(data)} bytes in base64; allowed: {-(-total // 8)}, a bit for each of {total} rows"
        )
    found = np.unpackbits(np.frombuffer(data, np.uint8), count=total, bitorder="little")
    return NamedRows(dict(zip(rows_of, np.split(found, ends[:-1]), strict=True)))


def fold_of(
    task: Fields, partition_key: int, rows_of: Mapping[int, int] | None = None
) -> Fold | NamedRows | None:
    """The fold in a task about a partition; None where there is none.

    Args:
        task: of a training or a score.
        partition_key: of the partition.
        rows_of: rows of each buffer of it, in the order of the buffers.

    Raises:
        InvalidArgument: it is no fold.
    """
    if rows_of is not None and task.has("fold_rows"):
        return _named_rows(task.text("fold_rows"), rows_of)
    if not task.has("fold"):
        return None
    values = task.integers("fold", 0, _MOST, most=2)
    if len(values) != 2 or values[0] >= values[1]:
        raise InvalidArgument(
            f"fold: got {list(values)}; allowed: a number from 0, and a larger one"
        )
    number, count = values
    return Fold((number - partition_key) % count, count)
