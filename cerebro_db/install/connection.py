"""Connection to the database of an installation, with the server's errors as ours."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg2
import sqlalchemy
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import NullPool

from cerebro_db.errors import CerebroError, InstallationFailed, MissingPrerequisite
from cerebro_db.install.script import pinned

_FEATURE_NOT_SUPPORTED = "0A000"

# Before anything is looked up by a name: the database may have a search_path with schemas of others, who
# would be run as the superuser that connects. The last one is Greenplum's, and means nothing elsewhere.
_FIRST = f"""
SET search_path = pg_catalog, pg_temp;
SET standard_conforming_strings = on;
SET client_encoding = 'UTF8';
SET plpython3.python_path = '';
{pinned("SET")}
"""


class Warnings:
    """Warnings of the server, each with its hint; in the place of a connection's list of notices."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def append(self, notice: str) -> None:
        """Keep a message of the server without its severity, which is in the server's language."""
        self.texts.append(notice.partition(":")[2].strip())


@contextmanager
def transaction(dsn: str, warnings: Warnings | None = None) -> Iterator[sqlalchemy.Connection]:
    """Open a transaction in the database that ``dsn`` names, as a libpq string or as a URL.

    Args:
        dsn: of the database.
        warnings: gets those of the server.

    Raises:
        InstallationFailed: no connection, or the transaction cannot be committed.
    """
    engine = sqlalchemy.create_engine(
        "postgresql+psycopg2://",
        creator=lambda: _connected(dsn, warnings or Warnings()),
        poolclass=NullPool,
        # Our statements hold percent signs, and no parameters.
        execution_options={"no_parameters": True},
    )
    try:
        with engine.begin() as connection:
            yield connection
    except DBAPIError as error:
        raise _translated(error, None) from error


def _connected(dsn: str, warnings: Warnings) -> psycopg2.extensions.connection:
    connection = psycopg2.connect(dsn, application_name="cerebro install")
    connection.notices = warnings
    with connection.cursor() as cursor:
        cursor.execute(_FIRST)
    connection.commit()
    return connection


def execute(connection: sqlalchemy.Connection, sql: str, what: str) -> None:
    """Executes one or more statements; ``what`` names them where they fail.

    Raises:
        MissingPrerequisite: the statements told what an installation lacks.
        InstallationFailed: any other error of the server.
    """
    _run(connection, sql, what).close()


def rows(connection: sqlalchemy.Connection, sql: str, what: str) -> list[tuple[object, ...]]:
    """The rows of a statement; errors as in :func:`execute`."""
    found = _run(connection, sql, what)
    return [tuple(row) for row in found] if found.returns_rows else []


def _run(
    connection: sqlalchemy.Connection, sql: str, what: str
) -> sqlalchemy.CursorResult[tuple[object, ...]]:
    try:
        return connection.exec_driver_sql(sql)
    except DBAPIError as error:
        raise _translated(error, what) from error


def _translated(error: DBAPIError, what: str | None) -> CerebroError:
    original = error.orig
    diagnosis = getattr(original, "diag", None)
    message = getattr(diagnosis, "message_primary", None) or str(original).strip()
    hint = getattr(diagnosis, "message_hint", None)
    sqlstate = getattr(original, "pgcode", None)
    if sqlstate == _FEATURE_NOT_SUPPORTED and hint:
        return MissingPrerequisite(message, hint)
    failed = InstallationFailed(f"{what}: {message}" if what else message, hint)
    failed.sqlstate = sqlstate or failed.sqlstate
    return failed
