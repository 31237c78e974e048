"""The process that makes a call of Cerebro-DB: its sessions, its caller's search path, its notices."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple, Protocol, TypeVar

from cerebro_db.errors import (
    CerebroError,
    LoopbackFailed,
    TrainerLost,
)
from cerebro_db.postgres.calls.settings import settings_of_session, work_for
from cerebro_db.postgres.catalog.runs import Catalog
from cerebro_db.postgres.dialects.choice import IDENTITY, PostgreSQL, dialect_of
from cerebro_db.postgres.sessions.errors import StatementFailed
from cerebro_db.postgres.sessions.pool import SessionPool
from cerebro_db.postgres.sessions.session import Session
from cerebro_db.postgres.tables.search_path import CallerPath, forget_search_path, use_search_path
from cerebro_db.postgres.tables.times import Styles

NO_RUN = 0
# As many as training uses where partitions are enough.
SCORING_THREADS = 1
Notify = Callable[[str], None]


class JobHost(Protocol):
    """The server process for which a job works, and the sessions that it has.

    Attributes:
        pool: its sessions, with the tick of the call.
        search_path: for the names that the caller gives.
        styles: of the caller's session, in which dates and times are written.
        job_id: of the job that makes the call; None where a session waits for it.
    """

    @property
    def job_id(self) -> int | None: ...
    @property
    def pool(self) -> SessionPool: ...
    @property
    def dialect(self) -> PostgreSQL: ...
    @property
    def search_path(self) -> CallerPath: ...
    @property
    def styles(self) -> Styles: ...

    def notice(self, message: str) -> None:
        """Send the caller a message about progress."""


def no_notice(message: str) -> None:
    """Drop a message about progress."""


@contextmanager
def control_session(pool: SessionPool, search_path: CallerPath | None) -> Iterator[Session]:
    """A session of the pool that knows the caller's search path; given back as it was.

    Args:
        search_path: where names without a schema are looked for; None for nowhere.
    """
    session = pool.take(1)[0]
    try:
        if search_path is not None:
            use_search_path(session, search_path)
        yield session
    finally:
        session.reset()
        forget_search_path(session)
        _unlock(session)
        pool.give([session])


def _unlock(session: Session) -> None:
    """A cancel may have come between a lock and what would have released it."""
    try:
        if not session.closed:
            session.run_through("SELECT pg_catalog.pg_advisory_unlock_all()")
    except CerebroError:
        session.close()


def preparation(use_gpus: bool, place: int = 0) -> tuple[str, tuple[int, bool, int, int, int, str]]:
    """The statement that gives a session a trainer that scores; it belongs to no run, and caches nothing.

    Frameworks are imported when a model needs them.

    Args:
        use_gpus: whether to compute on them.
        place: among the trainers that share the GPUs.
    """
    sql = "SELECT cerebro._prepare_worker(%s, %s, %s, %s, %s, %s)"
    return sql, (SCORING_THREADS, use_gpus, 0, NO_RUN, place, "")


class Client(NamedTuple):
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
R = TypeVar("R")


def retried_once(work: Callable[[], R], notify: Notify) -> R:
    """Do work that leaves nothing behind where it fails, and once more if a trainer ended in the middle of it.

    Args:
        work: done at most twice.
        notify: gets notices of a trainer that has ended.

    Raises:
        StatementFailed: of the second time; of the first one, if no trainer has ended.
    """
    try:
        return work()
    except StatementFailed as error:
        if error.sqlstate != TrainerLost.sqlstate:
            raise
        notify(f"{error.message}; its work is done again")
    return work()
