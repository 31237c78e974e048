"""Client process that drives runs: its sessions, and the facts that it needs of the server."""

from __future__ import annotations

from dataclasses import dataclass

from cerebro_db.errors import LoopbackFailed
from cerebro_db.postgres.catalog import Catalog
from cerebro_db.postgres.dialects.choice import IDENTITY, PostgreSQL, dialect_of
from cerebro_db.postgres.session_settings import settings_of_session, work_for
from cerebro_db.postgres.sessions import Session, SessionPool


@dataclass(frozen=True)
class Client:
    """A connection to a database that has Cerebro-DB.

    Attributes:
        pool: of sessions of the role that connects.
        search_path: that a plain session of this role has.
        cores: of the server.
    """

    pool: SessionPool
    dialect: PostgreSQL
    search_path: str
    cores: int

    @classmethod
    def of(cls, dsn: str) -> Client:
        """Connect and ask.

        Raises:
            LoopbackFailed: the server cannot be reached.
            StatementFailed: Cerebro-DB is not installed, or not for this role.
        """
        session = _connected(dsn)
        try:
            search_path, cores, name = session.run(_FACTS)[0]
            dialect = dialect_of(session.server_version, name)
            settings = settings_of_session(session, dsn)
        finally:
            session.close()
        pool = SessionPool(dsn, dialect.session_settings())
        work_for(pool, settings)
        return cls(pool, dialect, search_path, cores)

    def status(self, run_id: int) -> str:
        """Status of a run, as ``cerebro.runs`` has it."""
        (session,) = self.pool.take(1)
        try:
            return Catalog(session).run(run_id).status
        finally:
            self.pool.give([session])


def _connected(dsn: str) -> Session:
    try:
        session = Session(dsn, "cerebro")
        session.settle()
    except LoopbackFailed as error:
        error.hint = "--dsn tells where the server is; without it libpq's environment variables do"
        raise
    return session


_FACTS = f"SELECT pg_catalog.current_setting('search_path'), cerebro._cores(), {IDENTITY}"
