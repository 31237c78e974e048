"""The server of a benchmark: an embedded cluster of its own, or one that is there already."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg2
import psycopg2.extensions

from benchmarks.meter import Meter
from cerebro_db.install import installer
from cerebro_db.install.embedded import Cluster
from cerebro_db.install.script import Script
from cerebro_db.postgres.dialects.choice import IDENTITY

_OTHERS = (
    "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() "
    "AND pid <> pg_backend_pid() AND query NOT LIKE 'autovacuum:%'"
)
# The process that started the one which answers: on the coordinator, and on each segment.
_POSTMASTER = """
CREATE FUNCTION pg_temp.postmaster(n integer) RETURNS integer
LANGUAGE plpython3u AS 'import os; return os.getppid()'
"""
_OF_SEGMENTS = "SELECT pg_temp.postmaster(gp_segment_id) FROM gp_dist_random('gp_id')"
_PATIENCE = 60.0


@dataclass(frozen=True)
class Server:
    """A running server: where it is, what measures it, and how many segments it has, or none."""

    dsn: str
    meter: Meter
    segments: int = 0

    @contextmanager
    def session(self) -> Iterator[Any]:
        """The cursor of a fresh session, which ends with all the workers that it started."""
        connection = psycopg2.connect(self.dsn)
        connection.autocommit = True
        try:
            yield connection.cursor()
        finally:
            connection.close()
            self._wait_until_alone()

    def version(self) -> str:
        """Name and version of the server, without who compiled it and how."""
        with self.session() as cursor:
            cursor.execute("SELECT version()")
            text = str(cursor.fetchone()[0]).partition(" on ")[0]
        return text.removeprefix("PostgreSQL ")

    def _wait_until_alone(self) -> None:
        """Wait until processes of the side before have ended."""
        connection = psycopg2.connect(self.dsn)
        connection.autocommit = True
        cursor = connection.cursor()
        deadline = time.monotonic() + _PATIENCE
        while time.monotonic() < deadline:
            cursor.execute(_OTHERS)
            if cursor.fetchone()[0] == 0:
                break
            time.sleep(0.1)
        connection.close()


@contextmanager
def server(dsn: str | None = None) -> Iterator[Server]:
    """A server: one of its own, or a database of its own in the given one.

    Args:
        dsn: of a superuser's database, on this machine.
    """
    with _own_server() if dsn is None else _own_database(dsn) as running:
        yield running


@contextmanager
def _own_database(given: str) -> Iterator[Server]:
    """A database in a server that runs already, removed at the end."""
    name = f"cerebro_benchmark_{os.getpid()}"
    _execute(given, f"CREATE DATABASE {name}")
    try:
        dsn = psycopg2.extensions.make_dsn(given, dbname=name)
        installer.install(dsn, Script())
        postmasters, segments = postmasters_of(dsn)
        yield Server(dsn, Meter(*postmasters), segments)
    finally:
        _execute(
            given,
            f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'",
            "SELECT pg_sleep(1)",
            f"DROP DATABASE {name}",
        )


def postmasters_of(dsn: str) -> tuple[list[int], int]:
    """The first processes of a server, and how many segments it has."""
    connection = psycopg2.connect(dsn)
    with connection, connection.cursor() as cursor:
        cursor.execute(_POSTMASTER)
        cursor.execute("SELECT pg_temp.postmaster(0)")
        found = [cursor.fetchone()[0]]
        cursor.execute(f"SELECT {IDENTITY}")
        if cursor.fetchone()[0] != "postgresql":
            cursor.execute(_OF_SEGMENTS)
            found += [row[0] for row in cursor.fetchall()]
    connection.close()
    return found, len(found) - 1


def _execute(dsn: str, *statements: str) -> None:
    connection = psycopg2.connect(dsn)
    connection.autocommit = True
    with connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)
    connection.close()


@contextmanager
def _own_server() -> Iterator[Server]:
    """A server in a temporary folder, removed at the end."""
    with tempfile.TemporaryDirectory(prefix="cerebro-bench-", dir="/tmp") as folder:
        # Root's server runs as another user, who must be able to enter.
        Path(folder).chmod(0o755)
        cluster = Cluster(Path(folder) / "home")
        cluster.start()
        try:
            installer.install(cluster.dsn(), Script())
            pid = cluster.pid()
            assert pid is not None
            yield Server(cluster.dsn(), Meter(pid))
        finally:
            cluster.destroy()
