"""Rounds of an epoch: which rows each of its hops trains on."""

from __future__ import annotations

import math


def rows_of_round(
    rows: int, most: int, batch_size: int, number: int, rounds: int
) -> tuple[int, int]:
    """First row of a round in a pass over a partition, and the one after its last.

    The batches of the largest partition are dealt to the rounds as evenly as can be; a smaller
    partition has nothing left for the last ones.

    Args:
        rows: of the partition.
        most: rows of the largest partition.
        batch_size: of the configuration.
        number: of the round, from 0.
        rounds: of an epoch.
    """
    batches = math.ceil(most / batch_size)
    first, last = number * batches // rounds, (number + 1) * batches // rounds
    return min(first * batch_size, rows), min(last * batch_size, rows)


def shares_of(batch_size: int, size: int) -> list[int]:
    """Rows of a batch for each of those who share it, as even as can be.

    Args:
        batch_size: rows of the batch, at least one for each.
        size: of the group.
    """
    least, more = divmod(batch_size, size)
    return [least + (place < more) for place in range(size)]
