"""A database on a cluster with segments, where one is at hand: CEREBRO_GREENPLUM_DSN names it."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg2
import psycopg2.extensions
import pytest
from conftest import Sql

from cerebro_db.install import installer
from cerebro_db.install.script import Script
from tests.fitting.conftest import blobs as blobs

# Last, so that the package that is tested is the one that is installed.
sys.path.append(str(Path(__file__).resolve().parents[2]))

VARIABLE = "CEREBRO_GREENPLUM_DSN"
DATABASE = f"cerebro_segments_{os.getpid()}"
_END_SESSIONS = (
    f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{DATABASE}'"
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All tests of this folder need the cluster."""
    reason = f"{VARIABLE} names no cluster with segments"
    for item in items:
        if "tests/greenplum" in item.path.as_posix():
            item.add_marker(pytest.mark.greenplum)
            if VARIABLE not in os.environ:
                item.add_marker(pytest.mark.skip(reason=reason))


def _run(dsn: str, *statements: str) -> None:
    connection = psycopg2.connect(dsn)
    connection.autocommit = True
    with connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)
    connection.close()


@pytest.fixture(scope="session")
def segments_dsn() -> Iterator[str]:
    """A database of the cluster that has Cerebro-DB."""
    given = os.environ[VARIABLE]
    _run(given, f"DROP DATABASE IF EXISTS {DATABASE}", f"CREATE DATABASE {DATABASE}")
    dsn = psycopg2.extensions.make_dsn(given, dbname=DATABASE)
    installer.install(dsn, Script())
    yield dsn
    # Sessions of workers stay a moment longer than the one that they worked for.
    _run(given, _END_SESSIONS, "SELECT pg_sleep(1)", f"DROP DATABASE {DATABASE}")


@pytest.fixture
def segments(segments_dsn: str, connect: Callable[[str], Sql]) -> Sql:
    """A connection to that database."""
    return connect(segments_dsn)
