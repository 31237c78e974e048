"""Rows of the folds of a packed table whose rows have fold numbers."""

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
        """Which rows of a partition a fold, from 0, holds out, or else is trained on."""
        own = self.of_partitions[partition_key]
        chosen = own == fold
        if not held_out:
            chosen = own < fold if self.folds.kind == TIME else ~chosen
        found: np.ndarray = chosen
        return found

    def text(self, partition_key: int, fold: int, held_out: bool) -> str:
        """The same for a task of a worker."""
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
        f"SELECT p.partition_key, p.num_rows, p.{FOLD_NUMBERS} FROM {packed.relation.name.sql} p "
        "ORDER BY p.partition_key, p.buffer_id"
    )
    found: dict[int, list[np.ndarray]] = {one.partition_key: [] for one in packed.partitions}
    for partition_key, rows, data in session.run(sql):
        if len(data) != 4 * rows or partition_key not in found:
            raise InvalidData(
                f"{packed.relation.name}: got {len(data)} bytes of {FOLD_NUMBERS} for {rows} rows of partition "
                f"{partition_key}; allowed: four for each",
                PACK_AGAIN,
            )
        numbers = np.frombuffer(data, "<i4").astype(np.int64)
        found[partition_key].append(fold_of_numbers(numbers, folds, packed.rows))
    return FoldRows(folds, {key: np.concatenate(each) for key, each in found.items()})


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
        return numbers * (count + 1) // rows - 1
    turn, place = np.divmod(numbers, count)
    # Groups are there by their size: back and forth makes folds of nearly the same size.
    is_back = (turn % 2 == 1) & (folds.kind == GROUP)
    return np.where(is_back, count - 1 - place, place)
