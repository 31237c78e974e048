"""Sessions tick while they wait: what they are for can be cancelled, what must be known to be done cannot."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from cerebro_db.postgres.sessions.parallel import gather
from cerebro_db.postgres.sessions.pool import SessionPool
from cerebro_db.postgres.sessions.session import Session
from tests.conftest import Sql

SLEEP = "SELECT pg_sleep(%s)::text"


class Cancelled(Exception):
    """Raised by a tick."""


class Ticks:
    """Counts its calls; raises where it is told to, and lets a statement end."""

    def __init__(self) -> None:
        self.count, self.raises = 0, False
        self.third: Callable[[], object] = bool

    def __call__(self) -> None:
        self.count += 1
        if self.count == 3:
            self.third()
        if self.raises:
            raise Cancelled


@pytest.fixture
def ticks() -> Ticks:
    return Ticks()


@pytest.fixture
def pool(database: str, ticks: Ticks) -> Iterator[SessionPool]:
    pool = SessionPool(database, ["SET search_path = pg_catalog"], ticks)
    yield pool
    pool.close()


@pytest.fixture
def session(pool: SessionPool) -> Iterator[Session]:
    (session,) = pool.take(1)
    yield session
    session.close()


@pytest.fixture
def held(sql: Sql) -> Iterator[Callable[[], object]]:
    """A lock that a statement waits for; lets it go."""
    sql.run("SELECT pg_advisory_lock(1)")
    yield lambda: sql.run("SELECT pg_advisory_unlock_all()")
    sql.run("SELECT pg_advisory_unlock_all()")


def test_a_statement_ticks_and_is_cancelled(
    session: Session, ticks: Ticks, held: Callable[[], object]
) -> None:
    ticks.count, ticks.third = 0, held
    session.run("SELECT pg_advisory_lock(1)::text")
    assert ticks.count >= 3
    ticks.raises = True
    with pytest.raises(Cancelled):
        session.run(SLEEP, [60])
    session.recover()
    ticks.raises = False
    assert session.run("SELECT 1") == [(1,)]


def test_what_is_run_through_is_not(session: Session, ticks: Ticks) -> None:
    before, ticks.raises = ticks.count, True
    session.run_through(SLEEP, [0.3])
    with session.undisturbed():
        assert not session.ticks
        session.run(SLEEP, [0.3])
    assert ticks.count == before
    assert session.ticks
    with pytest.raises(Cancelled):
        session.run(SLEEP, [60])
    session.recover()


def test_sessions_have_the_tick_of_the_pool_when_they_are_taken(
    pool: SessionPool, session: Session, ticks: Ticks, held: Callable[[], object]
) -> None:
    pool.give([session])
    other = pool.tick = Ticks()
    taken = pool.take(2)
    assert taken[0] is session
    before, other.count, other.third = ticks.count, 0, held
    gather(taken, [("SELECT pg_advisory_lock_shared(1)::text", [])] * 2)
    assert ticks.count == before
    assert other.count >= 3
    pool.give(taken)
    with pool.undisturbed():
        (quiet,) = pool.take(1)
    assert not quiet.ticks
    assert pool.tick is other
    pool.give([quiet])
