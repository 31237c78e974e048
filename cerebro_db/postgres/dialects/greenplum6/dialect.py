"""Greenplum 6, a PostgreSQL 9.4 whose tables are spread over segments: what differs from PostgreSQL."""

from __future__ import annotations

from pathlib import Path

from cerebro_db.postgres.dialects.postgresql.dialect import PostgreSQL
from cerebro_db.postgres.dialects.segments.hosts import REPLICATE_CATALOG, SegmentHosts
from cerebro_db.postgres.dialects.segments.packing import SegmentPacking
from cerebro_db.postgres.dialects.segments.prediction import SegmentPrediction
from cerebro_db.postgres.dialects.segments.rotation import Rotation
from cerebro_db.postgres.dialects.segments.training import SegmentTraining

# Of a server whose tables are spread over segments; the same server may run alone, without any. It is
# asked in sessions with any search_path.
_HAS_SEGMENTS = (
    "(pg_catalog.to_regclass('pg_catalog.gp_distribution_policy') IS NOT NULL "
    "AND NOT EXISTS (SELECT 1 FROM pg_catalog.pg_settings s "
    "WHERE s.name OPERATOR(pg_catalog.=) 'gp_role' AND s.setting OPERATOR(pg_catalog.=) 'utility'))"
)
# Processes of segments go when their session was idle for so long, and their trainers with them.
_KEEP = "SET gp_vmem_idle_resource_timeout = 0"
# From this version of PostgreSQL on servers with segments have no sort of their own.
_ONE_SORT_SINCE = 120000


class Greenplum6(PostgreSQL):
    """Dialect of a server with segments.

    Each segment has a copy of the catalog, so that a query finds it there; but functions of a query run on segments too, where they
    may not read tables, and triggers can neither write elsewhere nor notify.
    """

    name = "greenplum6"
    is_here = _HAS_SEGMENTS
    sql: Path | None = Path(__file__).parent / "sql"

    has_segments = True
    functions_read_tables = False
    triggers_write = False
    views_join_locks = False
    anywhere = " DISTRIBUTED RANDOMLY"
    after_migration = REPLICATE_CATALOG

    hosts = SegmentHosts()
    packing = SegmentPacking()
    training = SegmentTraining()
    rotation: Rotation | None = Rotation()

    queues_statements = True
    held_locks = f"{PostgreSQL.held_locks} AND l.gp_segment_id = -1"
    # Most is written by processes of segments, which work for the same session; who locks rows has
    # the lock of their table, and no transaction's number.
    has_written = (
        "SELECT EXISTS (SELECT 1 FROM pg_catalog.pg_locks l WHERE (l.locktype = 'transactionid' "
        "AND l.mode = 'ExclusiveLock' OR l.locktype = 'relation' "
        "AND l.mode IN ('ExclusiveLock', 'AccessExclusiveLock')) AND l.granted AND l.mppsessionid IN "
        "(SELECT a.sess_id FROM pg_catalog.pg_stat_activity a WHERE a.pid = %s))"
    )

    blockers = None

    def __init__(self, server_version: int) -> None:
        super().__init__(server_version)
        self.prediction = SegmentPrediction(server_version)

    def session_settings(self) -> list[str]:
        """Statements that make a session fit for work of any length."""
        # Plans are those that were tried; what the statements need is there in this planner.
        settings = [*super().session_settings(), "SET optimizer = off", _KEEP]
        if self.server_version < _ONE_SORT_SINCE:
            # It counts rows and not their bytes: all buffers of a partition that moves would be in memory.
            settings.append("SET gp_enable_mk_sort = off")
        return settings
