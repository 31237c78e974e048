"""The sessions of a short job: the caller's search_path, locks, one transaction, scoring."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from cerebro_db.database.relations import CallerPath, forget_search_path, use_search_path
from cerebro_db.database.sessions import (
    POLL_SECONDS,
    Session,
    SessionPool,
    StatementFailed,
    Tick,
    no_tick,
    reset_all,
)
from cerebro_db.errors import CerebroError, InvalidData, ObjectInUse

NO_RUN = 0
# Of a session that has no TensorFlow yet: as many as training uses where partitions are enough.
SCORING_THREADS = 1

NUMBER = "number"  # what a session knows that has been a worker of a run

_THERE_ALREADY = "23505"
_DIFFERENCES = "SELECT message, hint FROM cerebro._catalog_differences() LIMIT 1"
_LOCK = "SELECT pg_catalog.pg_try_advisory_xact_lock(%s)"
LOCK_SECONDS = 30.0


def is_no_worker(session: Session) -> bool:
    """Whether a session has not trained: what it has compiled is for the next run's workers."""
    return NUMBER not in session.facts


def runs_no_tensorflow(session: Session) -> bool:
    """Whether a session is light: heavy ones are left to the work that needs them."""
    return "tensorflow" not in session.facts


Notify = Callable[[str], None]


def no_notice(message: str) -> None:
    """Tell nobody how far the work is."""


@contextmanager
def control_session(
    pool: SessionPool,
    search_path: CallerPath | None,
    tick: Tick = no_tick,
    fits: Callable[[Session], bool] = is_no_worker,
    prefer: Callable[[Session], bool] = runs_no_tensorflow,
) -> Iterator[Session]:
    """A session of the pool that knows the caller's search path; given back as it was.

    Args:
        pool: of sessions of the role whose rights count.
        search_path: where names without a schema are looked for; None for nowhere.
        tick: called while waiting.
        fits, prefer: which session, as in ``SessionPool.take``.
    """
    session = pool.take(1, fits, tick, prefer)[0]
    try:
        if search_path is not None:
            use_search_path(session, search_path, tick)
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
            session.run("SELECT pg_catalog.pg_advisory_unlock_all()")
    except CerebroError:
        session.close()


@contextmanager
def transaction(session: Session, tick: Tick = no_tick) -> Iterator[None]:
    """What is run inside is done as a whole, or not at all."""
    session.run("BEGIN", (), tick)
    try:
        yield
    except BaseException as error:
        session.reset()
        if isinstance(error, StatementFailed) and error.sqlstate == _THERE_ALREADY:
            _check_copies(session)
        raise
    # No tick: a cancel request must not leave it unknown whether this was done.
    session.run("COMMIT")


def _check_copies(session: Session) -> None:
    """Compare the copies of the catalog on segments: a row may be on one of them only.

    Raises:
        InvalidData: a copy differs from the others.
    """
    for message, hint in session.run(_DIFFERENCES):
        raise InvalidData(message, hint=hint)


def lock(session: Session, subject: str, tick: Tick = no_tick) -> None:
    """Be the only one who works on a subject until the transaction ends.

    Raises:
        ObjectInUse: a session holds the lock for longer than others wait.
    """
    key = lock_key(subject)
    deadline = time.monotonic() + LOCK_SECONDS
    while not session.run(_LOCK, (key,), tick)[0][0]:
        if time.monotonic() >= deadline:
            raise ObjectInUse(
                f"{subject}: got no lock within {LOCK_SECONDS:.0f} seconds; it is held by "
                f"{holder_of(session, key, tick)}",
                hint=END_HOLDER,
            )
        tick()
        time.sleep(POLL_SECONDS)


def holder_of(session: Session, key: int, tick: Tick = no_tick) -> str:
    """Process and role that hold an advisory lock, for messages: any role can, whatever it has to do with us."""
    rows = session.run(_HOLDER, (key,), tick)
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


def runs_tensorflow(session: Session) -> bool:
    """Whether a session has TensorFlow already, which saves seconds."""
    return "tensorflow" in session.facts


def may_score(session: Session, use_gpus: bool) -> bool:
    """Whether a session can score; unlike for training, any number of threads will do."""
    return bool(session.facts.get("tensorflow", (SCORING_THREADS, use_gpus))[1] == use_gpus)


def preparation(
    session: Session, use_gpus: bool, computes: bool = True, place: int = 0
) -> tuple[str, tuple[int, bool, int, int, int]]:
    """The statement that makes a session ready to score; it belongs to no run, and caches nothing.

    Args:
        session: which one.
        use_gpus: whether to compute on them. The session is not kept then: only the end of its
            processes gives back the memory of a GPU.
        computes: whether its own process does, or others that statements reach.
        place: among the sessions that share the GPUs.
    """
    threads, gpus = session.facts.setdefault("tensorflow", (SCORING_THREADS, use_gpus))
    session.keep, gpus = not gpus, gpus and computes
    sql = "SELECT cerebro._prepare_worker(%s, %s, %s, %s, %s)"
    return sql, (threads, gpus, 0, NO_RUN, place)


def release(sessions: Sequence[Session]) -> None:
    """Let sessions forget what they scored; their programs stay."""
    reset_all(sessions)
    for session in sessions:
        try:
            if not session.closed:
                session.run("SELECT cerebro._release_worker()")
        except CerebroError:  # it still computes what was cancelled
            session.close()
