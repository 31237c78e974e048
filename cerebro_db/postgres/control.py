"""Sessions of a short job: the caller's search_path, locks, one transaction, slots of workers, statements side by side."""

from __future__ import annotations

import contextlib
import hashlib
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from cerebro_db.errors import (
    CerebroError,
    InvalidData,
    LoopbackFailed,
    ObjectInUse,
    TooManyConnections,
    TrainerLost,
)
from cerebro_db.postgres.catalog import Catalog
from cerebro_db.postgres.dialects.choice import IDENTITY, PostgreSQL, dialect_of
from cerebro_db.postgres.relations import CallerPath, forget_search_path, use_search_path
from cerebro_db.postgres.session_settings import settings_of_session, work_for
from cerebro_db.postgres.sessions import (
    POLL_SECONDS,
    Session,
    SessionPool,
    StatementFailed,
    reset_all,
    wait_any,
)
from cerebro_db.postgres.times import Styles
from cerebro_db.requests.declared import MAX_WORKERS

NO_RUN = 0
# As many as training uses where partitions are enough.
SCORING_THREADS = 1
_THERE_ALREADY = "23505"
_DIFFERENCES = "SELECT message, hint FROM cerebro._catalog_differences() LIMIT 1"
_LOCK = "SELECT pg_catalog.pg_try_advisory_xact_lock(%s)"
LOCK_SECONDS = 30.0
Notify = Callable[[str], None]


class JobHost(Protocol):
    """The server process for which a job works, and the sessions that it has.

    Attributes:
        pool: its sessions, with the tick of the call.
        search_path: for the names that the caller gives.
        styles: of the caller's session, in which dates and times are told.
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


@contextmanager
def transaction(session: Session) -> Iterator[None]:
    """Do what is run inside as a whole, or not at all."""
    session.run("BEGIN")
    try:
        yield
    except BaseException as error:
        session.reset()
        if isinstance(error, StatementFailed) and error.sqlstate == _THERE_ALREADY:
            _check_copies(session)
        raise
    # A cancel request must not leave it unknown whether this was done.
    session.run_through("COMMIT")


def _check_copies(session: Session) -> None:
    """Compare the copies of the catalog on segments: a row may be on one of them only.

    Raises:
        InvalidData: a copy differs from the others.
    """
    for message, hint in session.run_through(_DIFFERENCES):
        raise InvalidData(message, hint=hint)


def lock(session: Session, subject: str) -> None:
    """Be the only one who works on a subject until the transaction ends.

    Raises:
        ObjectInUse: a session holds the lock for longer than others wait.
    """
    key = lock_key(subject)
    deadline = time.monotonic() + LOCK_SECONDS
    while not session.run(_LOCK, (key,))[0][0]:
        if time.monotonic() >= deadline:
            raise ObjectInUse(
                f"{subject}: got no lock within {LOCK_SECONDS:.0f} seconds; it is held by "
                f"{holder_of(session, key)}",
                hint=END_HOLDER,
            )
        session.tick()
        time.sleep(POLL_SECONDS)


def holder_of(session: Session, key: int) -> str:
    """Process and role that hold an advisory lock, for messages: any role can, whatever it has to do with us."""
    rows = session.run(_HOLDER, (key,))
    if not rows:  # gone meanwhile
        return "a session that has just ended"
    return f"process {rows[0][0]} of role {rows[0][1]}"


_HOLDER = """
SELECT l.pid, COALESCE(a.usename::text, 'unknown')
  FROM pg_catalog.pg_locks l LEFT JOIN pg_catalog.pg_stat_activity a ON a.pid = l.pid
 WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1
   AND l.database = (SELECT d.oid FROM pg_catalog.pg_database d
                      WHERE d.datname = pg_catalog.current_database())
   AND (l.classid::bigint << 32) | l.objid::bigint = %s
 ORDER BY l.pid LIMIT 1
"""
# Where it may be no session of ours that holds a lock.
END_HOLDER = (
    "wait for that process; one that does no such thing is ended by an administrator: "
    "SELECT pg_terminate_backend(process)"
)


def lock_key(subject: str) -> int:
    """The advisory lock of a subject, a bigint."""
    digest = hashlib.sha256(f"cerebro {subject}".encode()).digest()
    return int.from_bytes(digest[:8], "big", signed=True)


def preparation(use_gpus: bool, place: int = 0) -> tuple[str, tuple[int, bool, int, int, int]]:
    """The statement that gives a session a trainer that scores; it belongs to no run, and caches nothing.

    Args:
        use_gpus: whether to compute on them.
        place: among the trainers that share the GPUs.
    """
    sql = "SELECT cerebro._prepare_worker(%s, %s, %s, %s, %s)"
    return sql, (SCORING_THREADS, use_gpus, 0, NO_RUN, place)


Statement = tuple[str, Sequence[Any]]


def run_each(sessions: Sequence[Session], statement: Statement) -> None:
    """Run one statement in every session, side by side."""
    for session in sessions:
        session.send(*statement)
    _drain(sessions)


def run_all(sessions: Sequence[Session], statements: Iterable[Statement]) -> None:
    """Run every statement in one of the sessions; they are started in their order."""
    for statement in statements:
        _first_free(sessions).send(*statement)
    _drain(sessions)


def gather(
    sessions: Sequence[Session], statements: Sequence[Statement]
) -> list[list[tuple[Any, ...]]]:
    """Run every statement in one of the sessions; their rows, in the order of the statements."""

    def maker(statement: Statement) -> Callable[[Session], Statement]:
        return lambda session: statement

    return gather_made(sessions, [maker(statement) for statement in statements])


def gather_made(
    sessions: Sequence[Session], makers: Iterable[Callable[[Session], Statement]]
) -> list[list[tuple[Any, ...]]]:
    """Run statements side by side that depend on the session that runs them."""
    found: dict[int, list[tuple[Any, ...]]] = {}
    under_way: dict[Session, int] = {}

    def collect(session: Session) -> None:
        if session in under_way:
            found[under_way.pop(session)] = session.rows()

    for number, make in enumerate(makers):
        session = _first_free(sessions)
        collect(session)
        session.send(*make(session))
        under_way[session] = number
    _drain(sessions)
    for session in sessions:
        collect(session)
    return [found[number] for number in range(len(found))]


@contextlib.contextmanager
def borrowed(pool: SessionPool, count: int) -> Iterator[list[Session]]:
    """Sessions of the pool; what they are still doing at the end is cancelled and rolled back."""
    sessions = pool.take(count)
    try:
        yield sessions
    finally:
        reset_all(sessions)
        pool.give(sessions)


def _first_free(sessions: Sequence[Session]) -> Session:
    while True:
        for session in sessions:
            if session.advance():
                return session
        wait_any(sessions, POLL_SECONDS)
        sessions[0].tick()


def _drain(sessions: Sequence[Session]) -> None:
    pending = list(sessions)
    while pending := [session for session in pending if not session.advance()]:
        wait_any(pending, POLL_SECONDS)
        pending[0].tick()


# Limits of a database and of a role are not for superusers, for whom some connections are kept. More are
# kept, on newer servers, for members of a role.
_FREE = """
SELECT least(pg_catalog.current_setting('max_connections')::integer
             - CASE WHEN r.rolsuper THEN 0 ELSE
               pg_catalog.current_setting('superuser_reserved_connections')::integer
               + COALESCE((SELECT s.setting::integer FROM pg_catalog.pg_settings s
                            WHERE s.name = 'reserved_connections'
                              AND NOT EXISTS (SELECT 1 FROM pg_catalog.pg_roles u
                                               WHERE u.rolname = 'pg_use_reserved_connections'
                                                 AND pg_catalog.pg_has_role(u.oid, 'USAGE'))), 0) END
             - (SELECT sum(s.numbackends) FROM pg_catalog.pg_stat_database s),
             CASE WHEN d.datconnlimit >= 0 AND NOT r.rolsuper THEN d.datconnlimit
               - (SELECT s.numbackends FROM pg_catalog.pg_stat_database s WHERE s.datid = d.oid) END,
             CASE WHEN r.rolconnlimit >= 0 AND NOT r.rolsuper THEN r.rolconnlimit
               - (SELECT count(*) FROM pg_catalog.pg_stat_activity a WHERE a.usesysid = r.oid) END
       )::integer
  FROM pg_catalog.pg_database d, pg_catalog.pg_roles r
 WHERE d.datname = pg_catalog.current_database() AND r.rolname = current_user
"""


@contextmanager
def slots(
    control: Session,
    wanted: int,
    notify: Notify,
    fitting: int = MAX_WORKERS,
    ready: int = 0,
) -> Iterator[int]:
    """Reserve worker slots, which nobody else has meanwhile, and give their number.

    Args:
        control: a session; it holds the slots, which end with it.
        wanted: so many at most.
        notify: is told of fewer workers.
        fitting: what memory is enough for.
        ready: how many of them have their connections already.

    Raises:
        TooManyConnections: there is no connection for a single worker.
        ObjectInUse: other calls of this role have all workers that it may use.
    """
    by_memory = min(wanted, fitting)
    free = max(0, control.run(_FREE)[0][0]) + ready
    if not free:
        raise TooManyConnections(
            "got no free connection for a worker; allowed: at least one (max_connections, or a "
            "CONNECTION LIMIT of the role or the database)"
        )
    most = Catalog(control).settings().max_workers
    of_role = _slots(control, most)
    keys = _taken(control, of_role, min(by_memory, free))
    try:
        if not keys:
            raise ObjectInUse(
                f"got {wanted} workers beside those of other calls of this role; allowed: {most} "
                "together, the setting max_workers; the first is held by "
                f"{holder_of(control, of_role[0])}",
                hint=END_HOLDER,
            )
        if len(keys) < wanted:
            notify(_told(len(keys), wanted, by_memory, free, most))
        yield len(keys)
    finally:
        with suppress(CerebroError):
            if not control.busy and not control.closed:
                control.run_through(
                    f"SELECT {_UNLOCK} FROM pg_catalog.unnest(%s::bigint[]) AS k", (keys,)
                )


_UNLOCK = "pg_catalog.pg_advisory_unlock(k)"
# No more are tried than are needed: a LIMIT ends the scan.
_TAKE = """
SELECT k FROM pg_catalog.unnest(%s::bigint[]) AS k
 WHERE pg_catalog.pg_try_advisory_lock(k) LIMIT %s
"""


def _slots(control: Session, most: int) -> list[int]:
    """The locks of the slots that the role has."""
    role = control.run("SELECT cerebro._role()")[0][0]
    return [lock_key(f"worker {number} of role {role}") for number in range(most)]


def _taken(control: Session, slots: list[int], wanted: int) -> list[int]:
    """The locks of as many of the slots as are wanted and free."""
    return [key for (key,) in control.run(_TAKE, (slots, wanted))]


def _told(got: int, wanted: int, by_memory: int, free: int, most: int) -> str:
    """Reason for fewer workers; their number does not show in the results."""
    if got == by_memory:
        why = "memory of the server is enough for no more"
    elif got == free:
        why = f"{free} connections are free"
    else:
        why = f"all calls of a role may use {most} together, the setting max_workers"
    return f"{got} workers instead of {wanted}: {why}"


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


R = TypeVar("R")


def retried_once(work: Callable[[], R], notify: Notify) -> R:
    """Do work that leaves nothing behind where it fails, and once more if a trainer ended in the middle of it.

    Args:
        work: done at most twice.
        notify: is told of a trainer that has ended.

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
