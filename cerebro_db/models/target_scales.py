"""Mean and standard deviation of the numbers that a net is to predict."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

from cerebro_db.configs.architectures.graphs import Scale
from cerebro_db.postgres.names import quote
from cerebro_db.postgres.sessions.session import Session
from cerebro_db.postgres.tables.packed import PackedTable, PackedTarget

if TYPE_CHECKING:
    import numpy as np

_DIGITS = 6  # that are kept of them, so that the JSON of a net is short


def scale_of(session: Session, packed: PackedTable, target: PackedTarget) -> Scale:
    """Mean and standard deviation of each number of a target, over the rows of a packed table.

    They are merged buffer by buffer as in Chan et al. 1983, "Algorithms for Computing the Sample Variance", so that
    large means lose no digits. A deviation of 0 becomes 1.

    Args:
        session: of a role that may read the table; a partition is read at a time.
        packed: the table.
        target: one of its targets, of numbers.
    """
    import numpy as np  # which a driver is begun without

    count, mean, squares = 0, np.zeros(1), np.zeros(1)
    for number, data in _buffers(session, packed, target):
        rows = np.frombuffer(data, "<f4").reshape(number, -1).astype(np.float64)
        rows = rows[:, : math.prod(target.shape)]  # a weight may lie behind them
        count, mean, squares = _merged((count, mean, squares), rows)
    deviations = np.sqrt(squares / max(count, 1))
    return Scale(_rounded(mean), _rounded(np.where(deviations > 0, deviations, 1.0)))


def _buffers(
    session: Session, packed: PackedTable, target: PackedTarget
) -> Iterator[tuple[int, bytes]]:
    name = quote(target.name)
    sql = (
        f"SELECT t.num_rows, t.{name} FROM {packed.relation.name.sql} t WHERE t.partition_key = %s"
    )
    for partition in packed.partitions:
        for rows, data in session.run(sql, (partition.partition_key,)):
            yield rows, bytes(data)


def _merged(
    known: tuple[int, np.ndarray, np.ndarray], rows: np.ndarray
) -> tuple[int, np.ndarray, np.ndarray]:
    """Count, mean and sum of squared deviations of what is known, and of further rows."""
    count, mean, squares = known
    total = count + len(rows)
    center = rows.mean(axis=0)
    shift = center - mean
    squares = squares + ((rows - center) ** 2).sum(axis=0)
    return (
        total,
        mean + shift * (len(rows) / total),
        squares + shift**2 * (count * len(rows) / total),
    )


def _rounded(numbers: np.ndarray) -> tuple[float, ...]:
    return tuple(float(f"{number:.{_DIGITS}g}") for number in numbers)
