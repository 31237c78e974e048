"""Partitions and buffers of a packed table, compared with what its summary tells; no byte of the data is read."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from cerebro_db.configs.messages import shown
from cerebro_db.errors import (
    PACK_AGAIN,
    InvalidData,
)
from cerebro_db.postgres.names import QualifiedName, quote
from cerebro_db.postgres.sessions.session import Session
from cerebro_db.postgres.tables.kinds import Facts, Shape
from cerebro_db.postgres.tables.relations import Relation

_WORD = 4


_KEYS = ("partition_key", "buffer_id", "num_rows", "segment_key")


class PartitionInfo(NamedTuple):
    """The rows of one partition, and of each of its buffers as (buffer_id, rows).

    Attributes:
        segment_key: where they lie, None where tables are not spread over segments.
    """

    partition_key: int
    rows: int
    buffers: tuple[tuple[int, int], ...]
    segment_key: int | None = None


class Block(NamedTuple):
    """A column of arrays, one array of all rows in each buffer.

    Attributes:
        name: of the bytea column; the shapes are in another one beside it.
        shape: of one row.
        weighted: whether a number more lies behind each row.
    """

    name: str
    shape: Shape
    weighted: bool = False

    def shape_of(self, rows: int) -> list[int]:
        """The shape of a buffer of so many rows."""
        return [rows, *self.shape]

    def size(self, rows: int) -> int:
        """Bytes of a buffer of so many rows."""
        return rows * (math.prod(self.shape) + self.weighted) * _WORD


def read_buffers(
    session: Session, relation: Relation, summary: Facts, blocks: Sequence[Block], hint: str
) -> tuple[PartitionInfo, ...]:
    """The partitions of a packed table; no byte of the data is read.

    Args:
        session: has the caller's rights.
        relation: the packed table.
        summary: the row of its summary.
        blocks: its columns of arrays.
        hint: what makes such tables.

    Raises:
        InvalidData: buffers are missing, there are others, or one has another size.
        WrongObjectType: a number is none.
    """
    keys = [name for name in _KEYS if relation.has(name)]
    rows = session.run(_query(relation.name, keys, blocks))
    found: dict[tuple[int, int | None], dict[int, int]] = {}
    for row in rows:
        facts = Facts(summary.role, relation.name, dict(zip(keys, row, strict=False)), hint)
        key, buffer_id, count, *segment = (
            facts.whole(name, facts.row[name], 0) for name in facts.row
        )
        place = f"{summary.role}: {relation.name} has, in partition {key}, buffer {buffer_id}"
        _check_sizes(place, count, row[len(keys) :], blocks)
        buffers = found.setdefault((key, segment[0] if segment else None), {})
        if buffer_id in buffers:
            raise InvalidData(f"{place}, twice; allowed: each buffer once", PACK_AGAIN)
        buffers[buffer_id] = count
    partitions = tuple(
        PartitionInfo(key, sum(buffers.values()), tuple(buffers.items()), where)
        for (key, where), buffers in found.items()
    )
    _check_counts(summary, relation.name, partitions)
    return partitions


def _query(table: QualifiedName, keys: Sequence[str], blocks: Sequence[Block]) -> str:
    # One size more than a shape should have is enough to see that it is another one. OFFSET 0 has
    # this computed where the rows lie, as in ``print_query``.
    sizes = (
        f"(p.{quote(one.name + '_shape')})[1:{len(one.shape) + 2}] AS shape{place}, "
        f"pg_catalog.octet_length(p.{quote(one.name)}) AS bytes{place}"
        for place, one in enumerate(blocks)
    )
    listed = ", ".join([*(f"p.{name}" for name in keys), *sizes])
    return f"SELECT * FROM (SELECT {listed} FROM {table.sql} p OFFSET 0) AS q ORDER BY 1, 2"


def _check_sizes(place: str, rows: int, found: Sequence[Any], blocks: Sequence[Block]) -> None:
    """Number of rows, shapes and bytes of a buffer say the same."""
    for block, shape, size in zip(blocks, found[::2], found[1::2], strict=True):
        expected, wanted = block.shape_of(rows), block.size(rows)
        if shape != expected or size != wanted:
            raise InvalidData(
                f"{place}, num_rows {rows} with {block.name} of shape {shown(shape)} in {size} "
                f"bytes; allowed: shape {expected} in {wanted} bytes",
                PACK_AGAIN,
            )


def _check_counts(
    summary: Facts, table: QualifiedName, partitions: Sequence[PartitionInfo]
) -> None:
    """As many rows and buffers in each partition as packing has written down."""
    names = ("rows_per_partition", "buffers_per_partition")
    wanted = dict(enumerate(zip(*map(summary.wholes, names), strict=False)))
    found = {one.partition_key: (one.rows, len(one.buffers)) for one in partitions}
    if len(found) < len(partitions):
        raise InvalidData(
            f"{summary.role}: {table} has a partition on several segments; allowed: each on one",
            PACK_AGAIN,
        )
    for key in sorted({*wanted, *found}):
        got, recorded = found.get(key, (0, 0)), wanted.get(key, (0, 0))
        if got != recorded:
            raise InvalidData(
                f"{summary.role}: {table} has, in partition {key}, {got[0]} rows in {got[1]} "
                f"buffers; allowed: {recorded[0]} rows in {recorded[1]}, as {summary.table} says",
                PACK_AGAIN,
            )
