"""Connection to the database of an installation, with the server's errors as ours."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from cerebro_db.errors import CerebroError, InstallationFailed, LoopbackFailed, MissingPrerequisite
from cerebro_db.install.script import pinned
from cerebro_db.postgres.sessions.blocking import BlockingSession
from cerebro_db.postgres.sessions.errors import SessionLost, StatementFailed

_FEATURE_NOT_SUPPORTED = "0A000"

# Before anything is looked up by a name: the database may have a search_path with schemas of others, who
# would be run as the superuser that connects. The last one is of servers with segments, and means nothing elsewhere.
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
def transaction(dsn: str, warnings: Warnings | None = None) -> Iterator[BlockingSession]:
    """Open a transaction in the database that ``dsn`` names, as a libpq string or as a URL.

    Args:
        dsn: of the database.
        warnings: gets those of the server.

    Raises:
        InstallationFailed: no connection, or the transaction cannot be committed.
    """
    try:
        session = BlockingSession(dsn, "cerebro install", warnings or Warnings())
        try:
            session.run_text(_FIRST)
            with session.transaction():
                yield session
        finally:
            session.close()
    except (StatementFailed, SessionLost, LoopbackFailed) as error:
        raise _translated(error, None) from error


def execute(session: BlockingSession, sql: str, what: str) -> None:
    """Executes one or more statements; ``what`` names them where they fail.

    Raises:
        MissingPrerequisite: the statements have reported what an installation lacks.
        InstallationFailed: any other error of the server.
    """
    rows(session, sql, what)


def rows(session: BlockingSession, sql: str, what: str) -> list[tuple[object, ...]]:
    """The rows of a statement; errors as in :func:`execute`."""
    try:
        return session.run_text(sql)
    except (StatementFailed, SessionLost) as error:
        raise _translated(error, what) from error


def _translated(error: CerebroError, what: str | None) -> CerebroError:
    if error.sqlstate == _FEATURE_NOT_SUPPORTED and error.hint:
        return MissingPrerequisite(error.message, error.hint)
    failed = InstallationFailed(f"{what}: {error.message}" if what else error.message, error.hint)
    if isinstance(error, StatementFailed):
        failed.sqlstate = error.sqlstate or failed.sqlstate
    return failed
