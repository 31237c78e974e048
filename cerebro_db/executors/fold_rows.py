"""Rows of the folds of a packed table, as its driver knows them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cerebro_db.core.folds import FOLD_NUMBERS, GROUP, TIME, Folds
from cerebro_db.errors import PACK_AGAIN, InvalidArgument, InvalidData
from cerebro_db.postgres.sessions.session import Session
from cerebro_db.postgres.tables.packed import PackedTable

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True)
class FoldRows:
    """The fold of each row of a packed table.

    Attributes:
        folds: of the run.
        of_partitions: from 0, of the rows of each partition, buffer after buffer; -1 for those that no fold
            holds out.
    """

    folds: Folds
    of_partitions: Mapping[int, np.ndarray]

    def mask(self, partition_key: int, fold: int, held_out: bool) -> np.ndarray:
        """Mask of the rows of a partition that a fold, from 0, holds out, or else of those that it is trained on."""
        own = self.of_partitions[partition_key]
        chosen = own == fold
        if not held_out:
            chosen = own < fold if self.folds.kind == TIME else ~chosen
        found: np.ndarray = chosen
        return found

    def text(self, partition_key: int, fold: int, held_out: bool) -> str:
        """Text of a mask, for a task of a worker."""
        from cerebro_db.training.folds import bits_of

        return bits_of(self.mask(partition_key, fold, held_out))

    def check(self, name: str) -> None:
        """Refuse folds without rows to train on, or to validate on.

        Args:
            name: of the packed table.

        Raises:
            InvalidArgument: there is such a fold in a partition.
        """
        for partition_key in self.of_partitions:
            for fold in range(self.folds.count):
                for held_out, what in ((True, "holds out"), (False, "is trained on")):
                    if not self.mask(partition_key, fold, held_out).any():
                        raise InvalidArgument(
                            f"folds: got {self.folds.count}, of which fold {fold + 1} {what} no row of partition "
                            f"{partition_key} of {name}; allowed: some of each partition",
                            hint="fewer folds, or pack the table with fewer partitions",
                        )


def read_fold_rows(session: Session, packed: PackedTable, folds: Folds) -> FoldRows:
    """The rows of the folds of a run.

    Args:
        session: may read the packed table.
        packed: with fold numbers.
        folds: of the run.

    Raises:
        InvalidData: numbers are missing.
    """
    import numpy as np

    sql = (
        f"SELECT p.{FOLD_NUMBERS}::bytea FROM {packed.relation.name.sql} p WHERE p.partition_key = %s "
        "ORDER BY p.buffer_id"
    )
    found: dict[int, np.ndarray] = {}
    for one in packed.partitions:
        data = b"".join(bytes(each or b"") for (each,) in session.run(sql, (one.partition_key,)))
        if len(data) != 4 * one.rows:
            raise InvalidData(
                f"{packed.relation.name}: got {len(data)} bytes of {FOLD_NUMBERS} for the {one.rows} rows of partition "
                f"{one.partition_key}; allowed: four for each",
                PACK_AGAIN,
            )
        numbers = np.frombuffer(data, "<i4").astype(np.int64)
        found[one.partition_key] = fold_of_numbers(numbers, folds, packed.rows)
    return FoldRows(folds, found)


def placed_fold_rows(packed: PackedTable, folds: Folds) -> FoldRows:
    """The rows of the folds of a run, where these follow from the places of rows."""
    import numpy as np

    from cerebro_db.training.folds import turns

    return FoldRows(
        folds,
        {
            one.partition_key: np.concatenate(
                [
                    _small((turns(buffer_id, rows, folds.count) + one.partition_key) % folds.count)
                    for buffer_id, rows in one.buffers
                ]
            )
            for one in packed.partitions
        },
    )


def fold_of_numbers(numbers: np.ndarray, folds: Folds, rows: int) -> np.ndarray:
    """The fold of each row, from 0; -1 for those that are only trained on.

    Args:
        numbers: fold numbers, as ``packing.fold_rules.numbers_of`` makes them.
        folds: of the run.
        rows: of the whole table.
    """
    import numpy as np

    count = folds.count
    if folds.kind == TIME:
        return _small(numbers * (count + 1) // rows - 1)
    turn, place = np.divmod(numbers, count)
    # Groups are there by their size: back and forth makes folds of nearly the same size.
    is_back = (turn % 2 == 1) & (folds.kind == GROUP)
    return _small(np.where(is_back, count - 1 - place, place))


def _small(folds: np.ndarray) -> np.ndarray:
    """A byte for each row: there are 100 folds at most."""
    found: np.ndarray = folds.astype("int8")
    return found
