"""Rows of each class of a packed table."""

from __future__ import annotations

from cerebro_db.postgres.names import quote
from cerebro_db.postgres.packed import PackedTable
from cerebro_db.postgres.sessions import Session
from cerebro_db.training.scores.targets import TargetFacts, plain


def class_counts(session: Session, packed: PackedTable, targets: TargetFacts) -> tuple[int, ...]:
    """Rows by class id, from the targets of all buffers; a partition is read at a time.

    Args:
        session: of a role that may read the table.
        packed: of one target, which is a class.
        targets: how it is stored.
    """
    import numpy as np  # which a driver is begun without

    column = quote(packed.target.name)
    sql = f"SELECT t.{column} FROM {packed.relation.name.sql} t WHERE t.partition_key = %s"
    total = np.zeros(targets.num_classes, np.int64)
    for partition in packed.partitions:
        for (data,) in session.run(sql, (partition.partition_key,)):
            ids = plain(np.frombuffer(bytes(data), targets.record))
            total += np.bincount(ids, minlength=targets.num_classes)
    return tuple(total.tolist())
