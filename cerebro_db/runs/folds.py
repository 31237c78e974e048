"""Folds of a new run: configurations become trainings, one for each fold."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import structs

from cerebro_db.core.decisions import Change
from cerebro_db.core.folds import Folds
from cerebro_db.errors import InvalidArgument
from cerebro_db.executors.fold_rows import FoldRows, read_fold_rows
from cerebro_db.postgres.sessions.session import Session
from cerebro_db.postgres.tables.packed import PackedTable


def folds_of(count: int | None, rows: Sequence[Change], packed: PackedTable) -> Folds | None:
    """The folds of the configurations of a run; None where it has none.

    Raises:
        InvalidArgument: a partition has too few rows.
    """
    if count is None:
        return None
    keys = tuple(one.mst_key for one in rows)
    if packed.fold_kind is not None:
        return Folds(count, keys, packed.fold_kind)
    least = min(max(rows for _, rows in one.buffers) for one in packed.partitions)
    if count > least:
        raise InvalidArgument(
            f"folds: got {count}; allowed for {packed.relation.name}: 2 to {least}, as each fold holds out "
            "rows of each partition, whose smallest has no buffer with more rows",
            hint="pack the table with fewer partitions, or with a larger buffer_size",
        )
    return Folds(count, keys)


def fold_rows_of(session: Session, folds: Folds | None, packed: PackedTable) -> FoldRows | None:
    """The rows of each fold, where they have fold numbers."""
    if folds is None or folds.kind is None:
        return None
    return read_fold_rows(session, packed, folds)


def trainings(rows: Sequence[Change], folds: Folds | None) -> list[Change]:
    """A row for each configuration and fold; the rows themselves where there are no folds."""
    if folds is None:
        return list(rows)
    return [
        structs.replace(one, mst_key=folds.key(place, fold))
        for place, one in enumerate(rows)
        for fold in range(1, folds.count + 1)
    ]
