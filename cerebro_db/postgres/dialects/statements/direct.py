"""SQL text of direct workers: they read partitions and states, and leave states, through one session."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from cerebro_db.postgres.dialects.statements.orders import HopOrder, Statement
from cerebro_db.postgres.names import QualifiedName
from cerebro_db.postgres.sessions.binary import Value
from cerebro_db.postgres.tables.packed import PackedTable

# A place where a state is left: a segment key, None where there are no segments; and the partition where it goes.
Goal = tuple[int | None, int | None]
# A part of a state: number and bytes; the first one has the report of the hop.
Chunk = tuple[int, bytes, str | None]


class DirectStatements:
    """Statements of a direct worker."""

    # Statements that a session begins with, beside those of any other.
    settings: tuple[str, ...] = ()
    # Columns of a table of states, as ``state_rows`` has them.
    state_columns = "mst_key, version, chunk, partition_key, state, report"

    def place(self, packed: PackedTable, partition_key: int) -> int | None:
        """Segment key of a partition, and of states that are trained on it next; None without segments."""
        return None

    def goals(self, packed: PackedTable, order: HopOrder) -> list[Goal]:
        """Goals of the state that a hop leaves."""
        return [(None, order.next_partition_key)]

    def state(
        self, table: QualifiedName, mst_key: int, version: int, place: int | None
    ) -> Statement:
        """The chunks of a state, in their order."""
        sql = (
            f"SELECT s.state FROM {table.sql} s WHERE s.mst_key = %s AND s.version = %s "
            "ORDER BY s.chunk"
        )
        return sql, [mst_key, version]

    def state_rows(
        self, mst_key: int, version: int, goals: Sequence[Goal], chunks: Sequence[Chunk]
    ) -> Iterator[Sequence[Value]]:
        """Rows of a state, one for each of its chunks."""
        ((_, following),) = goals
        for number, data, report in chunks:
            yield (
                mst_key,
                version,
                number,
                following,
                data,
                None if report is None else report.encode(),
            )

    def buffers(
        self,
        table: QualifiedName,
        columns: dict[str, str],
        partition_key: int,
        buffer_ids: Sequence[int],
        place: int | None,
        oid: int | None = None,
    ) -> Statement:
        """Buffers of a partition: buffer_id, features, their shape, targets, their shape.

        Args:
            table: that is packed.
            columns: as ``columns_of`` tells them.
            partition_key: of the partition.
            buffer_ids: which of them.
            place: segment key of the partition.
            oid: of the table that is meant, so that another one of its name has no rows; None where rows have none.
        """
        sql = (
            "SELECT p.buffer_id, p.{x}, p.{x_shape}, p.{y}, p.{y_shape} FROM {table} p "
            "WHERE p.partition_key = %s AND p.buffer_id = ANY (%s::int[])"
        ).format(table=table.sql, **columns)
        if oid is None:
            return sql, [partition_key, list(buffer_ids)]
        return f"{sql} AND p.tableoid = %s::oid", [partition_key, list(buffer_ids), oid]
