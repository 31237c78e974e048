"""The servers that one suite of tests runs on: the embedded one, or a cluster with segments."""

from __future__ import annotations

import os
import re
import time
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any, Protocol

import psycopg2
import psycopg2.errors
import psycopg2.extensions
from pace import stretched

EMBEDDED, SEGMENTS = "embedded", "segments"
VARIABLE = "CEREBRO_GREENPLUM_DSN"
# Processes of sessions that have ended stay a moment, on segments as well.
_WAIT_SECONDS = 30
_END_SESSIONS = (
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
    " WHERE datname = %s AND pid <> pg_backend_pid()"
)


# What a function of ours raised on purpose: the server's own errors, and defects, begin with a class.
_OURS = re.compile(r'PL/Python function "cerebro_')
# A cancel is the server's own, also where it is Python that hears it.
_CANCELLED = "57014"
_CLASS = re.compile(r"spiexceptions\.|([\w.]*Error|[\w.]*Exception|KeyboardInterrupt): ")

_INTERNAL = re.compile(r"cerebro\._|cerebro_(train|measure|joined_state)\(")


class HintedCursor(psycopg2.extensions.cursor):
    """Whatever a test calls: an error that Cerebro-DB raises has a SQLSTATE and a HINT."""

    def execute(self, query: Any, values: Any = None) -> None:
        """Run statements."""
        try:
            super().execute(query, values)
        except psycopg2.Error as error:
            if not _INTERNAL.search(str(query)):  # what users do not call has no hint of its own
                check_hint(error)
            raise


def check_hint(error: psycopg2.Error) -> None:
    """Whether an error says what to do, if it is one of ours."""
    told = error.diag.message_primary or ""
    is_cancel = error.pgcode == _CANCELLED and told.startswith("canceling statement due to ")
    if _OURS.search(error.diag.context or "") and not _CLASS.match(told) and not is_cancel:
        assert error.pgcode not in (None, "XX000", "38000"), told
        assert error.diag.message_hint, told
        assert "\n" not in error.diag.message_hint, error.diag.message_hint


def connected(dsn: str, **options: Any) -> Any:
    """An autocommit connection that insists on hints."""
    connection = psycopg2.connect(dsn, cursor_factory=HintedCursor, **options)
    connection.autocommit = True
    return connection


# How many partitions a packed table has at most.
_most_partitions = 2**31


def limit_partitions() -> None:
    """The tests use a cluster with segments: a partition is the rows of one of these."""
    global _most_partitions
    with closing(psycopg2.connect(os.environ[VARIABLE])) as connection:
        cursor = connection.cursor()
        cursor.execute(
            "SELECT count(*) FROM gp_segment_configuration WHERE role = 'p' AND content >= 0"
        )
        ((_most_partitions,),) = cursor.fetchall()


def partitions(wanted: int) -> int:
    """So many, or as many as there can be: at least 2."""
    return min(wanted, _most_partitions)


class Server(Protocol):
    """Where the databases of tests are."""

    def dsn(self, database: str = ...) -> str:
        """The connection string of a database, for its superuser."""


@dataclass(frozen=True)
class SegmentServer:
    """A cluster that runs already.

    Args:
        given: the connection string of one of its databases.
    """

    given: str

    @classmethod
    def named(cls) -> SegmentServer:
        """What the environment names."""
        return cls(os.environ[VARIABLE])

    def dsn(self, database: str = "postgres") -> str:
        """The connection string of a database."""
        return psycopg2.extensions.make_dsn(self.given, dbname=database)


def as_role(dsn: str, role: str) -> str:
    """The connection string of another role."""
    return psycopg2.extensions.make_dsn(dsn, user=role)


def make_database(administrator: Any, name: str, template: str = "template1") -> None:
    """A database that is a copy of another, in which nobody is."""
    _insist(administrator, f"CREATE DATABASE {name} TEMPLATE {template}", template)
    if administrator.connection.server_version < 120000:  # which round what they show of a number
        administrator.run(f"ALTER DATABASE {name} SET extra_float_digits = 3")


def drop_database(administrator: Any, name: str) -> None:
    """Remove a database, and end the sessions in it."""
    if administrator.connection.server_version >= 130000:
        administrator.run(f"DROP DATABASE {name} WITH (FORCE)")
    else:
        _insist(administrator, f"DROP DATABASE {name}", name)


def _insist(administrator: Any, statement: str, database: str) -> None:
    deadline = time.monotonic() + stretched(_WAIT_SECONDS)
    while True:
        try:
            administrator.run(statement)
            return
        except psycopg2.errors.ObjectInUse:
            if time.monotonic() > deadline:
                raise
        administrator.fetch(_END_SESSIONS, [database])
        time.sleep(0.2)


def row_named(pattern: str, has_segments: bool) -> str:
    """How a message names a row; on segments rows have no numbers."""
    return re.sub(r"^row \d+( of the scan)?", "a row", pattern) if has_segments else pattern


def without_segment(message: str) -> str:
    """A message without the process of a segment that said it."""
    return re.sub(r"  \(seg\d+ [^)]*\)", "", message)


def partitioned(name: str, columns: str, has_segments: bool) -> str:
    """A table partitioned by its column y, of which 0 to 2 are allowed, as each server writes it."""
    parts = {"zero": "0", "more": "1, 2"}
    if has_segments:
        listed = ", ".join(f"PARTITION {part} VALUES ({keys})" for part, keys in parts.items())
        return (
            f"CREATE TABLE {name} ({columns}) DISTRIBUTED RANDOMLY PARTITION BY LIST (y) ({listed})"
        )
    made = [
        f"CREATE TABLE {name}_{part} PARTITION OF {name} FOR VALUES IN ({keys})"
        for part, keys in parts.items()
    ]
    return "; ".join([f"CREATE TABLE {name} ({columns}) PARTITION BY LIST (y)", *made])


@dataclass
class Caller:
    """A client process for which a job works, with what it was told.

    Args:
        pool: of sessions.
        dialect: of the server.
        search_path: for names.
    """

    pool: Any
    dialect: Any
    search_path: Any = None
    styles: Any = None
    job_id: int | None = None
    told: list[str] = field(default_factory=list)

    def notice(self, message: str) -> None:
        """Keep what is told."""
        self.told.append(message)
