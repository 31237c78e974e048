"""SQL text of direct workers where states and partitions lie on segments."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from cerebro_db.postgres.dialects.segments.training import (
    COPY,
    partition_of,
    segment_after,
    segment_key_of,
)
from cerebro_db.postgres.dialects.statements.direct import Chunk, DirectStatements, Goal
from cerebro_db.postgres.dialects.statements.orders import HopOrder, Statement
from cerebro_db.postgres.names import QualifiedName
from cerebro_db.postgres.sessions.binary import Value
from cerebro_db.postgres.tables.packed import PackedTable


class SegmentDirect(DirectStatements):
    """Statements of a direct worker where states and partitions lie on segments: one of them answers, or takes a state."""

    # Statistics of a table would be locked until the transaction that brings a state ends.
    settings: tuple[str, ...] = ("SET gp_autostats_mode = none",)
    state_columns = f"segment_key, {DirectStatements.state_columns}"

    def place(self, packed: PackedTable, partition_key: int) -> int | None:
        """Segment key of a partition."""
        return segment_key_of(partition_of(packed, partition_key))

    def goals(self, packed: PackedTable, order: HopOrder) -> list[Goal]:
        """Goals of the state that a hop leaves: all but the first are copies."""
        copies = [(segment_key_of(partition_of(packed, key)), COPY) for key in order.others]
        return [(segment_after(packed, order), order.next_partition_key), *copies]

    def state(
        self, table: QualifiedName, mst_key: int, version: int, place: int | None
    ) -> Statement:
        """The chunks of a state, or of its copy on the segment where it is trained next."""
        sql = (
            f"SELECT s.state FROM {table.sql} s WHERE s.segment_key = %s AND s.mst_key = %s "
            "AND s.version = %s ORDER BY s.chunk"
        )
        return sql, [place, mst_key, version]

    def state_rows(
        self, mst_key: int, version: int, goals: Sequence[Goal], chunks: Sequence[Chunk]
    ) -> Iterator[Sequence[Value]]:
        """Rows of a state, one for each of its chunks on each segment."""
        for place, following in goals:
            for number, data, report in chunks:
                own = None if following == COPY or report is None else report.encode()
                yield place, mst_key, version, number, following, data, own

    def buffers(
        self,
        table: QualifiedName,
        columns: dict[str, str],
        partition_key: int,
        buffer_ids: Sequence[int],
        place: int | None,
        oid: int | None = None,
    ) -> Statement:
        """Buffers of a partition, from its segment."""
        sql, parameters = super().buffers(table, columns, partition_key, buffer_ids, place, oid)
        return f"{sql} AND p.segment_key = %s", [*parameters, place]
