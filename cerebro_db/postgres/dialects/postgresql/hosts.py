"""Hosts and their GPUs on PostgreSQL: there is one host, that of the server."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from cerebro_db.postgres.names import QualifiedName

# What this host is called where there is no other.
LOCALHOST = "localhost"


@dataclass(frozen=True)
class Server:
    """A process of a cluster that serves a part of it.

    Attributes:
        dbid: its number in the cluster.
        content: the number of its segment, negative for the coordinator.
        role: ``p`` for the one that serves, ``m`` for its mirror.
        hostname: where it runs.
    """

    dbid: int
    content: int
    role: str
    hostname: str

    @property
    def is_segment(self) -> bool:
        """True if it is a segment that serves."""
        return self.content >= 0 and self.role == "p"

    @property
    def what(self) -> str:
        """In words."""
        if self.content < 0:
            return "the coordinator" if self.role == "p" else "the standby of the coordinator"
        return f"{'a' if self.role == 'p' else 'the mirror of'} segment {self.content}"


class PostgreSQLHosts:
    """Texts of the statements."""

    # All servers of the cluster, as of Server; None where there are no segments.
    servers: str | None = None

    def segments_of(self, table: QualifiedName) -> str | None:
        """The segments on which a table has rows; None where there are none."""
        return None

    def places_of(self, table: QualifiedName) -> str | None:
        """Partition keys of a packed table, and the segment of each; None where there are no segments."""
        return None

    def gpus(self, segments: Sequence[int], source: str) -> tuple[str, list[Any]]:
        """The segment and the GPUs of its host, for each of ``segments``; here for the server.

        Args:
            segments: one on each host.
            source: who is asked.
        """
        return "SELECT 0, cerebro._gpus(%s)", [source]


class GreenplumHosts(PostgreSQLHosts):
    """Texts of the statements."""

    servers = """
    SELECT c.dbid::integer, c.content::integer, c.role::text, c.hostname::text
      FROM pg_catalog.gp_segment_configuration c ORDER BY c.dbid
    """

    def segments_of(self, table: QualifiedName) -> str | None:
        """The segments on which a table has rows."""
        return f"SELECT DISTINCT t.gp_segment_id FROM {table.sql} t"

    def places_of(self, table: QualifiedName) -> str | None:
        """Partition keys of a packed table, and the segment of each."""
        return f"SELECT DISTINCT t.partition_key, t.gp_segment_id FROM {table.sql} t"

    def gpus(self, segments: Sequence[int], source: str) -> tuple[str, list[Any]]:
        """The segment and the GPUs of its host, for each of ``segments``.

        There is no join, which might call the function elsewhere.
        """
        sql = (
            "SELECT gp_segment_id, cerebro._gpus(%s) FROM gp_dist_random('gp_id') "
            "WHERE gp_segment_id = ANY (%s::integer[])"
        )
        return sql, [source, list(segments)]
