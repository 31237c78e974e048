"""Folds of a new run: configurations become trainings, one for each fold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from msgspec import structs

from cerebro_db.core.decisions import Change
from cerebro_db.core.folds import Folds
from cerebro_db.errors import InvalidArgument
from cerebro_db.executors.fold_rows import FoldRows, placed_fold_rows, read_fold_rows
from cerebro_db.postgres.names import quote
from cerebro_db.postgres.sessions.session import Session
from cerebro_db.postgres.tables.packed import PackedTable
from cerebro_db.training.scores.targets import TargetFacts, plain


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


def weights_of(
    session: Session,
    folds: Folds | None,
    packed: PackedTable,
    targets: TargetFacts,
    rows: FoldRows | None,
) -> tuple[tuple[float, ...], ...]:
    """The weights of classes in each fold, where a configuration balances them; else none.

    Args:
        session, packed, targets: as below.
        folds: of the run.
        rows: of the folds, where they have fold numbers.
    """
    if folds is None or not targets.counts:
        return ()
    return fold_weights(session, packed, targets, rows or placed_fold_rows(packed, folds))


def fold_weights(
    session: Session, packed: PackedTable, targets: TargetFacts, rows: FoldRows
) -> tuple[tuple[float, ...], ...]:
    """For each fold the weights by which all classes count the same in the rows that are trained on.

    Args:
        session: may read the packed table.
        packed: of one target, which is a class.
        targets: how it is stored.
        rows: of the folds.
    """
    import numpy as np  # which a driver is begun without

    column = quote(packed.target.name)
    sql = (
        f"SELECT t.{column} FROM {packed.relation.name.sql} t WHERE t.partition_key = %s "
        "ORDER BY t.buffer_id"
    )
    counts = np.zeros((rows.folds.count, targets.num_classes), np.int64)
    for partition in packed.partitions:
        key = partition.partition_key
        data = b"".join(bytes(one) for (one,) in session.run(sql, (key,)))
        ids = plain(np.frombuffer(data, targets.record))
        for fold, own in enumerate(counts):
            own += np.bincount(ids[rows.mask(key, fold, False)], minlength=len(own))
    return tuple(replace(targets, counts=tuple(own)).balanced for own in counts.tolist())
