"""Tables in which a driver finds direct workers, gives them orders and reads their answers."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from cerebro_db.postgres.sessions.session import Session


def channel_of_worker(worker_id: int) -> str:
    """The channel on which a worker hears that there is something for it."""
    return f"cerebro_direct_worker_{int(worker_id)}"


def channel_of_driver(run_id: int) -> str:
    """The channel on which the driver of a run hears of its workers."""
    return f"cerebro_direct_run_{int(run_id)}"


class DirectRow(NamedTuple):
    """A worker that has not left.

    Attributes:
        is_admitted: by this driver.
        is_ready: whether its trainer is.
        is_there: whether its session is.
        pid: process of the server that it is connected to.
    """

    worker_id: int
    host: str
    is_admitted: bool
    is_ready: bool
    is_there: bool
    pid: int


class Given(NamedTuple):
    """An order that was given.

    Attributes:
        fence: key of the lock under which it is answered, or taken back.
    """

    order_id: int
    fence: int


def anyone(session: Session, run_id: int) -> bool:
    """True if a worker wants to join."""
    sql = (
        "SELECT 1 FROM cerebro._direct_workers w WHERE w.run_id = %s AND w.departed IS NULL LIMIT 1"
    )
    return bool(session.run(sql, (run_id,)))


def revoke(session: Session, run_id: int) -> None:
    """Take back all orders of a run: none of their hops is committed from now on.

    A worker that commits one at this moment is waited for. Those that are there wait for another driver.
    """
    sql = "SELECT o.order_id, o.fence FROM cerebro._direct_orders o WHERE o.run_id = %s"
    orders = session.run(sql, (run_id,))
    for row in orders:
        take_back(session, run_id, Given(*row))
    if orders or anyone(session, run_id):
        session.run("SELECT cerebro._revoke_orders(%s)", (run_id,))


def take_back(session: Session, run_id: int, given: Given) -> bool:
    """Take an order back; False where its answer is there.

    A worker that commits its hop at this moment is waited for.
    """
    sql = "SELECT cerebro._take_order_back(%s, %s, %s)"
    return bool(session.run(sql, (run_id, given.order_id, given.fence))[0][0])


class DirectBoard:
    """Orders and answers of one run.

    Args:
        session: which nothing else uses.
        run_id: which run.
        held_locks: statement that tells process and key of the locks that are held.
    """

    def __init__(self, session: Session, run_id: int, held_locks: str) -> None:
        self._session, self._run_id, self._held_locks = session, run_id, held_locks
        session.run(f"LISTEN {channel_of_driver(run_id)}")

    @property
    def session(self) -> Session:
        """Session of the board, whose socket is readable when there are notifications."""
        return self._session

    def workers(self) -> list[DirectRow]:
        """The workers that have not left."""
        rows = self._session.run(_WORKERS, (self._run_id,))
        # Afterwards: whoever has joined meanwhile is not taken for gone. A worker holds its lock for as
        # long as its session is there.
        held = set(self._session.run(self._held_locks)) if rows else set()
        return [
            DirectRow(worker_id, host, is_admitted, is_ready, (pid, key) in held, pid)
            for worker_id, host, is_admitted, is_ready, pid, key in rows
        ]

    def answers(self) -> Mapping[int, str]:
        """Answers, as JSON, by order_id."""
        sql = "SELECT a.order_id, a.answer FROM cerebro._direct_answers a WHERE a.run_id = %s"
        return dict(self._session.run(sql, (self._run_id,)))

    def admit(self, worker_id: int, number: int, told: str) -> None:
        """Let a worker work; it hears what makes its trainer ready."""
        self._session.run(
            f"SELECT cerebro._admit_worker(%s, %s, %s); NOTIFY {channel_of_worker(worker_id)}",
            (worker_id, number, told),
        )

    def give(self, worker_id: int, hop: str) -> Given:
        """Give an order, as JSON."""
        fence = secrets.randbits(64) - 2**63
        sql = f"NOTIFY {channel_of_worker(worker_id)}; SELECT cerebro._give_order(%s, %s, %s, %s)"
        ((order_id,),) = self._session.run(sql, (self._run_id, worker_id, hop, fence))
        return Given(int(order_id), fence)

    def take_back(self, given: Given) -> bool:
        """Take an order back; False where its answer is there."""
        return take_back(self._session, self._run_id, given)

    def forget(self, order_ids: Sequence[int]) -> None:
        """Orders are done with, and their answers."""
        self._session.run(
            "SELECT cerebro._forget_orders(%s, %s::bigint[])", (self._run_id, list(order_ids))
        )

    def departed(self, worker_id: int, reason: str) -> None:
        """A worker has gone without a word, or is sent away."""
        self._session.run(
            f"SELECT cerebro._worker_departed(%s, %s); NOTIFY {channel_of_worker(worker_id)}",
            (worker_id, reason),
        )

    def has_news(self) -> bool:
        """True if a notification has come since the last time."""
        return self._session.take_notifications()


_WORKERS = """
SELECT w.worker_id, w.host, w.number IS NOT NULL, w.facts IS NOT NULL, w.pid, w.lock_key
  FROM cerebro._direct_workers w WHERE w.run_id = %s AND w.departed IS NULL ORDER BY w.worker_id
"""
