"""Transactions, and advisory locks that are named by a subject."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator
from contextlib import contextmanager

from cerebro_db.errors import (
    InvalidData,
    ObjectInUse,
)
from cerebro_db.postgres.sessions.errors import StatementFailed
from cerebro_db.postgres.sessions.session import POLL_SECONDS, Session

_THERE_ALREADY = "23505"
_DIFFERENCES = "SELECT message, hint FROM cerebro._catalog_differences() LIMIT 1"
LOCK_SECONDS = 30.0


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


def try_lock(session: Session, key: int) -> bool:
    """Take an advisory lock for a session, if nobody has it."""
    return bool(session.run("SELECT pg_catalog.pg_try_advisory_lock(%s)", (key,))[0][0])


def try_lock_here(session: Session, key: int) -> bool:
    """Take an advisory lock until the transaction ends, if nobody has it."""
    return bool(session.run("SELECT pg_catalog.pg_try_advisory_xact_lock(%s)", (key,))[0][0])


def unlock(session: Session, key: int) -> None:
    """Give an advisory lock of a session back."""
    session.run_through("SELECT pg_catalog.pg_advisory_unlock(%s)", (key,))


def lock(session: Session, subject: str) -> None:
    """Be the only one who works on a subject until the transaction ends.

    Raises:
        ObjectInUse: a session holds the lock for longer than others wait.
    """
    key = lock_key(subject)
    deadline = time.monotonic() + LOCK_SECONDS
    while not try_lock_here(session, key):
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
