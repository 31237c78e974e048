"""SQL text of direct workers: they read partitions and states, and leave states, through one session."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from cerebro_db.postgres.dialects.statements.orders import Goal, Statement
from cerebro_db.postgres.dialects.statements.training import TrainingStatements
from cerebro_db.postgres.names import QualifiedName
from cerebro_db.postgres.sessions.binary import Value

# A part of a state: number and bytes; the first one has the report of the hop.
Chunk = tuple[int, bytes, str | None]


class DirectStatements:
    """Statements of a direct worker.

    Args:
        training: of the same server; it knows on which segment a partition lies.
    """

    def __init__(self, training: TrainingStatements) -> None:
        self._training = training

    @property
    def settings(self) -> tuple[str, ...]:
        """Statements that a session begins with, beside those of any other."""
        return self._training.settings

    @property
    def state_columns(self) -> str:
        """Columns of a table of states, as ``state_rows`` has them."""
        return f"{self._training.state_columns}, report"

    def state(
        self, table: QualifiedName, mst_key: int, version: int, segment_key: int | None
    ) -> Statement:
        """The chunks of a state, in their order; those of its copy on a segment."""
        here, segment = _on(segment_key, "s")
        sql = (
            f"SELECT s.state FROM {table.sql} s WHERE s.mst_key = %s AND s.version = %s{here} "
            "ORDER BY s.chunk"
        )
        return sql, [mst_key, version, *segment]

    def state_rows(
        self, mst_key: int, version: int, goals: Sequence[Goal], chunks: Sequence[Chunk]
    ) -> Iterator[Sequence[Value]]:
        """Rows of a state, one for each of its chunks and goals; copies, behind the first goal, have no report."""
        for place, (segment_key, following) in enumerate(goals):
            segment = () if segment_key is None else (segment_key,)
            for number, data, report in chunks:
                own = None if place or report is None else report.encode()
                yield *segment, mst_key, version, number, following, data, own

    def buffers(
        self,
        table: QualifiedName,
        columns: dict[str, str],
        partition_key: int,
        buffer_ids: Sequence[int],
        segment_key: int | None,
        oid: int | None = None,
    ) -> Statement:
        """Buffers of a partition: buffer_id, features, their shape, targets, their shape.

        Args:
            table: that is packed.
            columns: as ``columns_of`` tells them.
            partition_key: of the partition.
            buffer_ids: which of them.
            segment_key: of the partition; None without segments.
            oid: of the table that is meant, so that another one of its name has no rows; None where rows have none.
        """
        here, segment = _on(segment_key, "p")
        same = "" if oid is None else " AND p.tableoid = %s::oid"
        sql = (
            "SELECT p.buffer_id, p.{x}, p.{x_shape}, p.{y}, p.{y_shape} FROM {table} p "
            "WHERE p.partition_key = %s AND p.buffer_id = ANY (%s::int[]){same}{here}"
        ).format(table=table.sql, same=same, here=here, **columns)
        oids = [] if oid is None else [oid]
        return sql, [partition_key, list(buffer_ids), *oids, *segment]


def _on(segment_key: int | None, alias: str) -> Statement:
    """Condition of rows of one segment; none without segments."""
    return ("", []) if segment_key is None else (f" AND {alias}.segment_key = %s", [segment_key])
