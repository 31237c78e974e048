"""Greenplum: tables are spread over segments; a partition is the rows of one of them."""

from __future__ import annotations

from cerebro_db.postgres.dialects.greenplum_hosts import GreenplumHosts
from cerebro_db.postgres.dialects.greenplum_packing import GreenplumPacking
from cerebro_db.postgres.dialects.greenplum_prediction import GreenplumPrediction
from cerebro_db.postgres.dialects.greenplum_rotation import GreenplumRotation
from cerebro_db.postgres.dialects.greenplum_training import GreenplumTraining
from cerebro_db.postgres.dialects.postgresql import PostgreSQL
from cerebro_db.postgres.dialects.postgresql_training import RotationStatements

# Processes of segments go when their session was idle for so long, and their trainers with them.
_KEEP = "SET gp_vmem_idle_resource_timeout = 0"


class Greenplum(PostgreSQL):
    """Dialect of a server with segments."""

    hosts = GreenplumHosts()
    packing = GreenplumPacking()
    training = GreenplumTraining()
    rotation: RotationStatements | None = GreenplumRotation()

    queues_statements = True
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
        self.prediction = GreenplumPrediction(server_version)

    def session_settings(self) -> list[str]:
        """Statements that make a session fit for work of any length."""
        # Plans are those that were tried; what the statements need is there in this planner.
        return [*super().session_settings(), "SET optimizer = off", _KEEP]
