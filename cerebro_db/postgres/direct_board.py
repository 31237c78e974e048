"""Tables in which a driver finds direct workers, gives them orders and reads their answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cerebro_db.postgres.sessions import Session


def channel_of_worker(worker_id: int) -> str:
    """The channel on which a worker hears that there is something for it."""
    return f"cerebro_direct_worker_{int(worker_id)}"


def channel_of_driver(run_id: int) -> str:
    """The channel on which the driver of a run hears of its workers."""
    return f"cerebro_direct_run_{int(run_id)}"


@dataclass(frozen=True)
class DirectRow:
    """A worker that has not left.

    Attributes:
        is_admitted: by this driver.
        is_ready: whether its trainer is.
        is_there: whether its session is.
    """

    worker_id: int
    host: str
    is_admitted: bool
    is_ready: bool
    is_there: bool


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
    if anyone(session, run_id):
        session.run("DELETE FROM cerebro._direct_orders WHERE run_id = %s", (run_id,))
        session.run(
            "UPDATE cerebro._direct_workers SET number = NULL, facts = NULL "
            "WHERE run_id = %s AND departed IS NULL",
            (run_id,),
        )


class DirectBoard:
    """Orders and answers of one run.

    Args:
        session: which nothing else uses.
        run_id: which run.
    """

    def __init__(self, session: Session, run_id: int) -> None:
        self._session, self._run_id = session, run_id
        session.run(f"LISTEN {channel_of_driver(run_id)}")

    @property
    def session(self) -> Session:
        """Its session, whose socket tells of news."""
        return self._session

    def workers(self) -> list[DirectRow]:
        """The workers that have not left."""
        return [DirectRow(*row) for row in self._session.run(_WORKERS, (self._run_id,))]

    def answers(self) -> Mapping[int, str]:
        """Answers, as JSON, by order_id."""
        sql = (
            "SELECT o.order_id, o.answer FROM cerebro._direct_orders o "
            "WHERE o.run_id = %s AND o.answer IS NOT NULL"
        )
        return dict(self._session.run(sql, (self._run_id,)))

    def admit(self, worker_id: int, number: int, told: str) -> None:
        """Let a worker work; it hears what makes its trainer ready."""
        self._session.run(
            "UPDATE cerebro._direct_workers SET number = %s, told = %s, facts = NULL WHERE worker_id = %s; "
            f"NOTIFY {channel_of_worker(worker_id)}",
            (number, told, worker_id),
        )

    def give(self, worker_id: int, hop: str) -> int:
        """Give an order, as JSON; returns its order_id."""
        sql = (
            "WITH given AS (INSERT INTO cerebro._direct_orders (run_id, worker_id, hop) VALUES (%s, %s, %s) "
            "RETURNING order_id) SELECT g.order_id, pg_catalog.pg_notify(%s, '') FROM given g"
        )
        values = (self._run_id, worker_id, hop, channel_of_worker(worker_id))
        return int(self._session.run(sql, values)[0][0])

    def take_back(self, order_id: int) -> bool:
        """Take an order back; False where its answer is there.

        A worker that commits its hop at this moment is waited for.
        """
        return bool(
            self._session.run(
                "DELETE FROM cerebro._direct_orders WHERE order_id = %s AND answer IS NULL "
                "RETURNING order_id",
                (order_id,),
            )
        )

    def forget(self, order_ids: Sequence[int]) -> None:
        """Orders are done with."""
        sql = "DELETE FROM cerebro._direct_orders WHERE order_id = ANY (%s::bigint[])"
        self._session.run(sql, (list(order_ids),))

    def departed(self, worker_id: int, reason: str) -> None:
        """A worker has gone without a word, or is sent away."""
        self._session.run(
            "UPDATE cerebro._direct_workers SET departed = pg_catalog.clock_timestamp(), reason = %s "
            f"WHERE worker_id = %s AND departed IS NULL; NOTIFY {channel_of_worker(worker_id)}",
            (reason, worker_id),
        )

    def has_news(self) -> bool:
        """True if somebody has told something since the last time."""
        return self._session.heard()


# A worker holds its lock for as long as its session is there.
_WORKERS = """
SELECT w.worker_id, w.host, w.number IS NOT NULL, w.facts IS NOT NULL, EXISTS (
           SELECT 1 FROM pg_catalog.pg_locks l
            WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1 AND l.pid = w.pid
              AND l.database = (SELECT d.oid FROM pg_catalog.pg_database d
                                 WHERE d.datname = pg_catalog.current_database())
              AND (l.classid::bigint << 32) | l.objid::bigint = w.lock_key)
  FROM cerebro._direct_workers w WHERE w.run_id = %s AND w.departed IS NULL ORDER BY w.worker_id
"""
