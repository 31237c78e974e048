"""Statements that several sessions run side by side."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from cerebro_db.postgres.sessions.pool import SessionPool
from cerebro_db.postgres.sessions.session import POLL_SECONDS, Session, reset_all, wait_any

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
