"""The sessions of a short job: the caller's search_path, locks, one transaction, scoring."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from cerebro_db.errors import CerebroError, InvalidData, ObjectInUse
from cerebro_db.postgres.relations import CallerPath, forget_search_path, use_search_path
from cerebro_db.postgres.sessions import (
    POLL_SECONDS,
    Session,
    SessionPool,
    StatementFailed,
)

NO_RUN = 0
# As many as training uses where partitions are enough.
SCORING_THREADS = 1

_THERE_ALREADY = "23505"
_DIFFERENCES = "SELECT message, hint FROM cerebro._catalog_differences() LIMIT 1"
_LOCK = "SELECT pg_catalog.pg_try_advisory_xact_lock(%s)"
LOCK_SECONDS = 30.0


Notify = Callable[[str], None]


def no_notice(message: str) -> None:
    """Tell nobody how far the work is."""


@contextmanager
def control_session(pool: SessionPool, search_path: CallerPath | None) -> Iterator[Session]:
    """A session of the pool that knows the caller's search path; given back as it was.

    Args:
        pool: of sessions of the role whose rights count.
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
