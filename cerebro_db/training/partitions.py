"""Decoded partitions of a worker: bounded memory, the order of rows in a hop, batches of it."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from cerebro_db.errors import PACK_AGAIN, InvalidData
from cerebro_db.training.folds import Fold, NamedRows
from cerebro_db.training.shuffle import buffer_order, row_order

CacheKey = tuple[int, str, int]  # run, data set, partition


@dataclass(frozen=True)
class Buffers:
    """The buffers of a partition: ids and rows, in the order of the ids."""

    ids: tuple[int, ...]
    rows: tuple[int, ...]

    @property
    def total(self) -> int:
        """Rows of the partition."""
        return sum(self.rows)

    @cached_property
    def rows_of(self) -> dict[int, int]:
        """Rows of each buffer by id."""
        return dict(zip(self.ids, self.rows, strict=True))

    def named(self, row: int) -> str:
        """Words for a row of the partition, by its place from 0 in the order of the ids."""
        ends = np.cumsum(self.rows)
        place = int(np.searchsorted(ends, row, "right"))
        return f"row {row + 1 - int(ends[place]) + self.rows[place]} of buffer {self.ids[place]}"

    def check(self, buffer_id: int, features: np.ndarray, targets: np.ndarray) -> None:
        """Refuse a buffer that has not as many rows as it should, features and targets alike.

        Raises:
            InvalidData: it has not, or there is no such buffer.
        """
        found = (len(features), len(targets))
        wanted = self.rows_of.get(buffer_id)
        if found != (wanted, wanted):
            raise InvalidData(
                f"got buffer {buffer_id} with {found[0]} rows of features and {found[1]} of targets; "
                f"allowed: {'no such buffer' if wanted is None else f'{wanted} of each'}",
                PACK_AGAIN,
            )


@dataclass
class Partition:
    """A partition in memory, its buffers one after another by id."""

    buffers: Buffers
    features: np.ndarray
    targets: np.ndarray
    missing: set[int] = field(default_factory=set)

    @staticmethod
    def empty(buffers: Buffers, features: np.ndarray, targets: np.ndarray) -> Partition:
        """Room for a partition whose rows look like those of a first buffer."""
        return Partition(
            buffers,
            np.empty((buffers.total, *features.shape[1:]), features.dtype),
            np.empty((buffers.total, *targets.shape[1:]), targets.dtype),
            set(buffers.ids),
        )

    def starts(self) -> dict[int, int]:
        """First row of each buffer."""
        ends = np.cumsum(self.buffers.rows)
        return {
            buffer_id: int(end - rows)
            for buffer_id, rows, end in zip(self.buffers.ids, self.buffers.rows, ends, strict=True)
        }

    def put(self, buffer_id: int, features: np.ndarray, targets: np.ndarray) -> None:
        """Place a buffer's rows.

        Raises:
            InvalidData: it has not as many as it should, or of another shape.
        """
        self.buffers.check(buffer_id, features, targets)
        shapes = features.shape[1:], targets.shape[1:]
        if shapes != (self.features.shape[1:], self.targets.shape[1:]):
            raise InvalidData(
                f"got buffer {buffer_id} with rows of the shapes {shapes}; allowed: "
                f"{self.features.shape[1:], self.targets.shape[1:]}, as in the first buffer",
                PACK_AGAIN,
            )
        start = self.starts()[buffer_id]
        self.features[start : start + len(features)] = features
        self.targets[start : start + len(targets)] = targets
        self.missing.discard(buffer_id)

    @property
    def nbytes(self) -> int:
        """Bytes of memory held."""
        return int(self.features.nbytes + self.targets.nbytes)

    def pieces(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """The rows of each buffer, by id."""
        for buffer_id, start in self.starts().items():
            rows = self.buffers.rows_of[buffer_id]
            yield self.features[start : start + rows], self.targets[start : start + rows]

    def named_pieces(self) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
        """The same, each with the id of the buffer."""
        for buffer_id, (features, targets) in zip(self.buffers.ids, self.pieces(), strict=True):
            yield buffer_id, features, targets


class PartitionCache:
    """Decoded partitions, the least recently used dropped first.

    Args:
        limit: bytes that all of them together may take.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._kept: OrderedDict[CacheKey, Partition] = OrderedDict()

    def get(self, key: CacheKey) -> Partition | None:
        """A complete partition, or None."""
        if key in self._kept:
            self._kept.move_to_end(key)
        return self._kept.get(key)

    def put(self, key: CacheKey, partition: Partition) -> bool:
        """Keep a partition if it fits; returns whether it is kept."""
        if partition.missing:
            raise InvalidData(
                f"got a partition without its buffers {sorted(partition.missing)[:5]}",
                PACK_AGAIN,
            )
        if partition.nbytes > self.limit:
            return False
        self._kept.pop(key, None)
        while self._kept and self.nbytes + partition.nbytes > self.limit:
            self._kept.popitem(last=False)
        self._kept[key] = partition
        return True

    def names(self) -> list[CacheKey]:
        """Names of the partitions that are kept."""
        return list(self._kept)

    def clear(self) -> None:
        """Drop everything."""
        self._kept.clear()

    @property
    def nbytes(self) -> int:
        """Bytes of memory held."""
        return sum(partition.nbytes for partition in self._kept.values())


@dataclass(frozen=True)
class RowOrder:
    """Order of the rows in a hop.

    Attributes:
        fold: whose rows are left out, before the others are shuffled: the order is that of a packed table
            without them.
    """

    seed: int
    epoch: int
    partition_key: int
    salt: str
    shuffle: bool
    fold: Fold | NamedRows | None = None

    def buffers(self, subepoch: int, ids: tuple[int, ...]) -> list[int]:
        """Buffer ids in the order of a pass."""
        return buffer_order(self.salt, subepoch, ids) if self.shuffle else sorted(ids)

    def rows(self, subepoch: int, buffer_id: int, rows: int) -> np.ndarray:
        """The order of the rows of a buffer, ``int64[rows]``; of those that are not left out."""
        if self.fold is None:
            return self._order(subepoch, buffer_id, rows)
        kept = self.fold.kept(buffer_id, rows)
        return kept[self._order(subepoch, buffer_id, len(kept))]

    def _order(self, subepoch: int, buffer_id: int, rows: int) -> np.ndarray:
        if not self.shuffle:
            return np.arange(rows)
        return row_order(self.seed, self.epoch, self.partition_key, subepoch, buffer_id, rows)

    def total(self, buffers: Buffers) -> int:
        """Number of rows of a pass over a partition."""
        if self.fold is None:
            return buffers.total
        return sum(len(self.fold.kept(*one)) for one in buffers.rows_of.items())

    def whole(self, subepoch: int, partition: Partition) -> np.ndarray:
        """The order of the rows of a partition in memory, ``int64[rows]``."""
        starts = partition.starts()
        counts = partition.buffers.rows_of
        order = self.buffers(subepoch, partition.buffers.ids)
        return np.concatenate([starts[b] + self.rows(subepoch, b, counts[b]) for b in order])
