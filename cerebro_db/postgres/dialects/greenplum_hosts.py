"""Hosts and their GPUs on Greenplum: each host runs some of the segments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cerebro_db.postgres.dialects.postgresql_hosts import PostgreSQLHosts
from cerebro_db.postgres.names import QualifiedName


class GreenplumHosts(PostgreSQLHosts):
    """Texts of the statements."""

    servers = """
    SELECT c.dbid::integer, c.content::integer, c.role::text, c.hostname::text
      FROM pg_catalog.gp_segment_configuration c ORDER BY c.dbid
    """

    def segments_of(self, table: QualifiedName) -> str | None:
        """The segments on which a table has rows."""
        return f"SELECT DISTINCT t.gp_segment_id FROM {table.sql} t"

    def gpus(self, segments: Sequence[int], source: str) -> tuple[str, list[Any]]:
        """The segment and the GPUs of its host, for each of ``segments``.

        There is no join, which might call the function elsewhere.
        """
        sql = (
            "SELECT gp_segment_id, cerebro._gpus(%s) FROM gp_dist_random('gp_id') "
            "WHERE gp_segment_id = ANY (%s::integer[])"
        )
        return sql, [source, list(segments)]
