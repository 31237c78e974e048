"""PostgreSQL: partitions are rows of one table, any worker can read any partition."""

from __future__ import annotations

from cerebro_db.postgres.dialects.postgresql_hosts import PostgreSQLHosts
from cerebro_db.postgres.dialects.postgresql_packing import PostgreSQLPacking
from cerebro_db.postgres.dialects.postgresql_prediction import PostgreSQLPrediction
from cerebro_db.postgres.dialects.postgresql_training import (
    PostgreSQLTraining,
    RotationStatements,
)

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
            "SET client_min_messages = warning",  # nobody reads them; those of the caller's session are his
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
            settings.append("SET client_connection_check_interval = '2s'")
            settings.append("SET idle_session_timeout = 0")  # those of a run wait for any time
            if self.server_version >= TRANSACTION_TIMEOUT_SINCE:
                settings.append("SET transaction_timeout = 0")
        return settings
