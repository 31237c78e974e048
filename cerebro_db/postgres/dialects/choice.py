"""Dialects of servers, and which of them a server has, by what it can do."""

from __future__ import annotations

from cerebro_db.postgres.dialects.greenplum6.packing import GreenplumPacking, Spreading
from cerebro_db.postgres.dialects.greenplum6.packing import GreenplumPacking as SpreadPacking
from cerebro_db.postgres.dialects.greenplum6.prediction import Brought, GreenplumPrediction
from cerebro_db.postgres.dialects.greenplum6.prediction import (
    GreenplumPrediction as SpreadPrediction,
)
from cerebro_db.postgres.dialects.greenplum6.rotation import GreenplumRotation
from cerebro_db.postgres.dialects.greenplum6.training import GreenplumTraining
from cerebro_db.postgres.dialects.postgresql.direct import GreenplumDirect, PostgreSQLDirect
from cerebro_db.postgres.dialects.postgresql.hosts import GreenplumHosts, PostgreSQLHosts, Server
from cerebro_db.postgres.dialects.postgresql.packing import PostgreSQLPacking
from cerebro_db.postgres.dialects.postgresql.prediction import PostgreSQLPrediction
from cerebro_db.postgres.dialects.postgresql.training import (
    PostgreSQLTraining,
    RotationStatements,
)

__all__ = [
    "HAS_SEGMENTS",
    "Brought",
    "PostgreSQL",
    "Server",
    "SpreadPacking",
    "SpreadPrediction",
    "Spreading",
    "dialect_of",
]

BLOCKING_PIDS_SINCE = 90600
SESSION_CHECKS_SINCE = 140000
TRANSACTION_TIMEOUT_SINCE = 170000
# What a role, or a session, has set for itself must not change what is read and written; and
# objects of other users cannot get in between, whatever their names are.
DECIDING_SETTINGS = {
    "search_path": "pg_catalog, pg_temp",
    "extra_float_digits": "3",
    "standard_conforming_strings": "on",
    "DateStyle": "ISO, MDY",
    "IntervalStyle": "postgres",
    "TimeZone": "UTC",
    "bytea_output": "hex",
    "array_nulls": "on",
    "quote_all_identifiers": "off",
    "transform_null_equals": "off",
}
_NEWER_SETTINGS = (
    (90600, "SET idle_in_transaction_session_timeout = 0"),
    (90600, "SET max_parallel_workers_per_gather = 0"),
    (110000, "SET jit = off"),
)


class PostgreSQL:
    """Dialect of a plain PostgreSQL server.

    Args:
        server_version: as libpq tells it, for example 150018.
    """

    hosts = PostgreSQLHosts()
    packing = PostgreSQLPacking()
    training = PostgreSQLTraining()
    direct = PostgreSQLDirect()
    # Where one statement can train on all partitions at once.
    rotation: RotationStatements | None = None
    # Whether it may run so many statements of a role at a time only.
    queues_statements = False

    # Whether a transaction has written, or locked rows. Parameter: the process id of its session.
    has_written = (
        "SELECT EXISTS (SELECT 1 FROM pg_catalog.pg_locks l WHERE l.locktype = 'transactionid' "
        "AND l.mode = 'ExclusiveLock' AND l.granted AND l.pid = %s)"
    )

    # Tables that sessions wait for, of this one, also by way of others that wait for it. Parameter: their
    # process ids. Every name and operator has its schema: it is run on a search path that others may
    # have put something on.
    blockers: str | None = """
        WITH RECURSIVE waits(pid, blocker) AS (
            SELECT w.pid, b.pid FROM pg_catalog.unnest($1) AS w(pid),
                   pg_catalog.unnest(pg_catalog.pg_blocking_pids(w.pid)) AS b(pid)
             UNION
            SELECT w.pid, b.pid FROM waits w,
                   pg_catalog.unnest(pg_catalog.pg_blocking_pids(w.blocker)) AS b(pid))
        SELECT l.relation::pg_catalog.regclass::pg_catalog.text AS relation
          FROM waits w, pg_catalog.pg_locks l
         WHERE w.blocker OPERATOR(pg_catalog.=) pg_catalog.pg_backend_pid()
           AND l.pid OPERATOR(pg_catalog.=) w.pid AND NOT l.granted LIMIT 1
    """

    def __init__(self, server_version: int) -> None:
        self.server_version = server_version
        self.prediction = PostgreSQLPrediction(server_version)
        if server_version < BLOCKING_PIDS_SINCE:
            self.blockers = None

    def session_settings(self) -> list[str]:
        """Statements that make a session fit for work of any length."""
        settings = [
            *(f"SET {name} = {value}" for name, value in DECIDING_SETTINGS.items()),
            "SET client_min_messages = notice",  # of these a session keeps the reports of workers
            "SET default_transaction_isolation = 'read committed'",
            "SET default_transaction_read_only = off",
            "SET statement_timeout = 0",
            "SET lock_timeout = '30s'",
            # A connection that was cut without a word must not hold its locks for hours.
            "SET tcp_keepalives_idle = 30",
            "SET tcp_keepalives_interval = 10",
            "SET tcp_keepalives_count = 3",
        ]
        settings += [text for since, text in _NEWER_SETTINGS if self.server_version >= since]
        if self.server_version >= SESSION_CHECKS_SINCE:
            # A caller that was killed must not leave its workers at work, holding locks.
            settings.append("SET client_connection_check_interval = '1s'")
            settings.append("SET idle_session_timeout = 0")  # those of a run wait for any time
            if self.server_version >= TRANSACTION_TIMEOUT_SINCE:
                settings.append("SET transaction_timeout = 0")
        return settings


# Of a server whose tables are spread over segments; the same server may run alone, without any. It is
# asked in sessions with any search_path.
HAS_SEGMENTS = (
    "(pg_catalog.to_regclass('pg_catalog.gp_distribution_policy') IS NOT NULL "
    "AND NOT EXISTS (SELECT 1 FROM pg_catalog.pg_settings s "
    "WHERE s.name OPERATOR(pg_catalog.=) 'gp_role' AND s.setting OPERATOR(pg_catalog.=) 'utility'))"
)
# A source of one row without columns that are read: an aggregation over it and a table runs in the
# session's own process. Over a table alone, of which each segment has a copy, it may run on one.
HERE = "(SELECT FROM pg_catalog.pg_database WHERE datname = pg_catalog.current_database()) AS here"
# Processes of segments go when their session was idle for so long, and their trainers with them.
_KEEP = "SET gp_vmem_idle_resource_timeout = 0"
# From this version of PostgreSQL on servers with segments have no sort of their own.
_ONE_SORT_SINCE = 120000


class Greenplum(PostgreSQL):
    """Dialect of a server with segments."""

    hosts = GreenplumHosts()
    packing = GreenplumPacking()
    training = GreenplumTraining()
    direct = GreenplumDirect()
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
        settings = [*super().session_settings(), "SET optimizer = off", _KEEP]
        if self.server_version < _ONE_SORT_SINCE:
            # It counts rows and not their bytes: all buffers of a partition that moves would be in memory.
            settings.append("SET gp_enable_mk_sort = off")
        return settings


def dialect_of(server_version: int, has_segments: bool) -> PostgreSQL:
    """Dialect of a server.

    Args:
        server_version: as libpq tells it.
        has_segments: what the server answers to ``HAS_SEGMENTS``.
    """
    return Greenplum(server_version) if has_segments else PostgreSQL(server_version)
