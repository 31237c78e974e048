"""PostgreSQL: what this dialect is able to do, its settings, and the rooms of its statements.

A dialect is a class: capabilities, which are attributes that others ask for by name, in Python and in ``sql/``, and the
rooms of statements (``training``, ``packing``, ...). Another dialect derives from the one it is most alike, and overrides
what differs; its folder may have files of SQL, which replace those of the same name in ``sql/`` or are added to them.
"""

from __future__ import annotations

from pathlib import Path

from cerebro_db.postgres.dialects.segments.rotation import Rotation
from cerebro_db.postgres.dialects.statements.direct import DirectStatements
from cerebro_db.postgres.dialects.statements.hosts import Hosts
from cerebro_db.postgres.dialects.statements.packing import PackingStatements
from cerebro_db.postgres.dialects.statements.prediction import PredictionStatements
from cerebro_db.postgres.dialects.statements.training import TrainingStatements

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

    name = "postgresql"
    # An SQL condition, in sessions with any search_path: whether a server is of this dialect.
    is_here = "true"
    # A folder with files of SQL that replace those of sql/, or are added.
    sql: Path | None = None

    # Whether the rows of a table are spread over segments, each of which works on its own.
    has_segments = False
    # Whether a function that a query calls may read other tables.
    functions_read_tables = True
    # Whether a trigger, or a function that a query calls, may write tables and notify.
    triggers_write = True
    # Whether a view may look up locks for each row of a table; elsewhere it does so once, beforehand.
    views_join_locks = True
    # What ends CREATE TABLE AS where its rows may lie anywhere.
    anywhere = ""
    # PL/pgSQL after each migration.
    after_migration = ""

    hosts = Hosts()
    packing = PackingStatements()
    training = TrainingStatements()
    # Where one statement can train on all partitions at once.
    rotation: Rotation | None = None
    # Whether it may run so many statements of a role at a time only.
    queues_statements = False

    # Process (pid) and key of each advisory lock that a session of this database holds.
    held_locks = (
        "SELECT l.pid, (l.classid::bigint << 32) | l.objid::bigint AS key FROM pg_catalog.pg_locks l "
        "WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1 AND l.database = ("
        "SELECT d.oid FROM pg_catalog.pg_database d WHERE d.datname = pg_catalog.current_database())"
    )

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
        self.prediction = PredictionStatements(server_version)
        if server_version < BLOCKING_PIDS_SINCE:
            self.blockers = None

    @property
    def direct(self) -> DirectStatements:
        """Statements of direct workers."""
        return DirectStatements(self.training)

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
