"""Greenplum: tables are spread over segments; a partition is the rows of one of them."""

from __future__ import annotations

from dataclasses import replace

from cerebro_db.database.dialects.greenplum_hosts import GreenplumHosts
from cerebro_db.database.dialects.greenplum_packing import GreenplumPacking
from cerebro_db.database.dialects.greenplum_prediction import GreenplumPrediction
from cerebro_db.database.dialects.greenplum_rotation import GreenplumRotation
from cerebro_db.database.dialects.greenplum_training import GreenplumTraining
from cerebro_db.database.dialects.postgresql import PostgreSQL
from cerebro_db.database.dialects.postgresql_training import RotationStatements
from cerebro_db.database.sessions import SessionSettings

# Processes of segments go when their session was idle for so long, and what they have loaded with
# them: never while a run has them, and after the setting idle_seconds otherwise.
_KEEP = "SET gp_vmem_idle_resource_timeout = 0"
_GIVE_BACK = """
SELECT pg_catalog.set_config('gp_vmem_idle_resource_timeout', (1000 * (
    SELECT s.value::bigint FROM cerebro.settings s WHERE s.name = 'idle_seconds'))::text, false)
"""


class Greenplum(PostgreSQL):
    """What a job must know of a server with segments."""

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

    def session_settings(self) -> SessionSettings:
        """What makes a session fit for work of any length."""
        common = super().session_settings()
        # Plans are those that were tried; what the statements need is there in this planner.
        return replace(
            common, first=[*common.first, "SET optimizer = off"], in_use=_KEEP, idle=_GIVE_BACK
        )
