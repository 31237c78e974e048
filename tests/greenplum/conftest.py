"""A database on a cluster with segments, where one is at hand: CEREBRO_GREENPLUM_DSN names it."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import psycopg2.extensions
import pytest
from servers import VARIABLE, connected, drop_database, make_database

from cerebro_db.install import installer
from cerebro_db.install.script import Script
from cerebro_db.postgres.catalog.runs import Catalog
from cerebro_db.postgres.sessions.session import Session
from conftest import Sql
from tests.fitting.conftest import blobs as blobs

# Last, so that the package that is tested is the one that is installed.
sys.path.append(str(Path(__file__).resolve().parents[2]))

DATABASE = f"cerebro_segments_{os.getpid()}"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All tests of this folder need the cluster."""
    reason = f"{VARIABLE} names no cluster with segments"
    for item in items:
        if "tests/greenplum" in item.path.as_posix():
            item.add_marker(pytest.mark.greenplum)
            if VARIABLE not in os.environ:
                item.add_marker(pytest.mark.skip(reason=reason))


@contextmanager
def _administrator(dsn: str) -> Iterator[Sql]:
    """A new connection: tests restart the cluster."""
    with closing(connected(dsn)) as connection:
        yield Sql(connection, dsn)


@pytest.fixture(scope="session")
def segments_dsn() -> Iterator[str]:
    """A database of the cluster that has Cerebro-DB."""
    given = os.environ[VARIABLE]
    with _administrator(given) as administrator:
        administrator.run(f"DROP DATABASE IF EXISTS {DATABASE}")
        make_database(administrator, DATABASE)
    dsn = psycopg2.extensions.make_dsn(given, dbname=DATABASE)
    installer.install(dsn, Script())
    yield dsn
    with _administrator(given) as administrator:
        drop_database(administrator, DATABASE)


@pytest.fixture
def segments(segments_dsn: str, connect: Callable[[str], Sql]) -> Sql:
    """A connection to that database."""
    return connect(segments_dsn)


@pytest.fixture
def catalog(segments: Sql) -> Iterator[Catalog]:
    """The catalog as a member of cerebro_user sees it."""
    segments.run("CREATE ROLE trainer LOGIN; GRANT cerebro_user TO trainer")
    segments.run("CREATE TABLE m (model_id int, model_weights bytea)")
    segments.run("GRANT SELECT ON m TO trainer")
    session = Session(psycopg2.extensions.make_dsn(segments.dsn, user="trainer"), "test")
    session.settle()
    yield Catalog(session)
    session.close()
    segments.run("DELETE FROM cerebro.catalog_runs; DROP TABLE m; DROP ROLE trainer")
