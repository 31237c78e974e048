"""The worker sessions of a run."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from cerebro_db.database.catalog import Catalog
from cerebro_db.database.dialects import PostgreSQL
from cerebro_db.database.dialects.postgresql_training import StateTables
from cerebro_db.database.sessions import POLL_SECONDS, Session, SessionPool, Tick, wait_any
from cerebro_db.driver.crew import recover
from cerebro_db.driver.requests import Requests
from cerebro_db.driver.state_store import StateStore, StateTable
from cerebro_db.errors import CerebroError

# A worker that has not stopped then is left to itself.
STOP_SECONDS = 1.0


@dataclass
class Worker:
    """One worker session and what is known of it.

    Attributes:
        number: from 0.
        kept: names of the partitions that it has decoded in memory.
        free_since: when it last had nothing to do.
        job: what it does now.
        cancelled: whether that has been asked to stop.
        is_ready: whether TensorFlow is there.
        tables: of states, that the statement under way uses.
        target: the one of them that it writes to.
    """

    number: int
    session: Session
    kept: set[str] = field(default_factory=set)
    free_since: float = field(default_factory=time.monotonic)
    job: Any = None
    cancelled: bool = False
    is_ready: bool = False
    tables: list[StateTable] = field(default_factory=list)
    target: StateTable | None = None

    def waited(self) -> float:
        """Seconds without work until now."""
        return time.monotonic() - self.free_since

    def kept_partitions(self, dataset: str) -> set[int]:
        """Partition keys of a data set that are in memory."""
        parts = [name.rpartition("/") for name in self.kept]
        return {int(key) for found, _, key in parts if found == dataset}


@dataclass(frozen=True)
class RunContext:
    """What a run works with.

    Attributes:
        run_id: of the catalog.
        states: the names of its tables of states.
        store: where the states are.
        catalog: for plan and metrics; its session is not a worker's.
        dialect: of the server.
        requests: of others.
        guard_key: of the advisory lock that workers share while they work for the run.
        cache_bytes: of decoded partitions that each worker may keep.
        preparation: JSON of what makes a process of a worker's session ready.
        functions: registered ones that configurations use, for the manifest.
        manifest: what the workers must tell of themselves, where that matters; empty otherwise.
        tick: called while waiting; raises to cancel.
        notify: gets a line an epoch.
    """

    run_id: int
    states: StateTables
    store: StateStore
    catalog: Catalog
    dialect: PostgreSQL
    requests: Requests
    guard_key: int
    cache_bytes: int
    preparation: str
    functions: Mapping[str, Any]
    manifest: Mapping[str, Any]
    tick: Tick
    notify: Callable[[str], None]


def take_workers(
    pool: SessionPool, count: int, threads: int, use_gpus: bool, tick: Tick
) -> list[Worker]:
    """Sessions whose TensorFlow is not loaded yet, or is loaded with the same settings."""
    wanted = (threads, use_gpus)

    def fits(session: Session) -> bool:
        return bool(session.facts.get("tensorflow", wanted) == wanted)

    sessions = pool.take(count, fits, tick, prefer=lambda session: "tensorflow" in session.facts)
    # Each gets the number that it had: where a worker is bound to partitions, its processes are too.
    sessions.sort(key=lambda session: session.facts.get("number", count))
    for number, session in enumerate(sessions):
        session.facts["tensorflow"] = wanted
        session.facts["number"] = number
        # Only the end of its processes gives back the memory of a GPU.
        session.keep = not use_gpus
    return [Worker(number, session) for number, session in enumerate(sessions)]


def start_preparing(worker: Worker, context: RunContext) -> None:
    """Send what makes a session a worker.

    While it works for the run it shares a lock: whoever goes on with the run waits for that, so
    that no hop of a driver that is gone can be committed later.
    """
    threads, use_gpus = worker.session.facts["tensorflow"]
    worker.session.send(
        f"{context.dialect.training.durability(context.states)}; "
        "SELECT pg_catalog.pg_advisory_lock_shared(%s); "
        "SELECT cerebro._prepare_worker(%s, %s, %s, %s, %s)",
        (
            context.guard_key,
            threads,
            use_gpus and not context.dialect.training.binds_workers,
            context.cache_bytes,
            context.run_id,
            worker.number,
        ),
    )


def manifest_of(worker: Worker) -> dict[str, Any]:
    """What a worker that is ready told about itself."""
    facts: dict[str, Any] = json.loads(worker.session.rows()[0][0])
    _, use_gpus = worker.session.facts["tensorflow"]
    if use_gpus and not facts["use_gpus"]:  # others compute for it, each on one GPU
        facts |= {"use_gpus": True, "devices": 1}
    return facts


def stop(pool: SessionPool, workers: list[Worker]) -> None:
    """Stop what workers do, and keep the sessions that are soon ready for another run."""
    for worker in workers:
        worker.session.cancel()
    deadline = time.monotonic() + STOP_SECONDS
    while time.monotonic() < deadline and any(_busy(worker.session) for worker in workers):
        wait_any([worker.session for worker in workers], POLL_SECONDS)
    for worker in workers:
        # One that still imports TensorFlow would have to end that first.
        if not worker.is_ready or _busy(worker.session):
            worker.session.close()
        else:
            recover(worker.session)
    give_back(pool, workers)


def give_back(pool: SessionPool, workers: list[Worker]) -> None:
    """Release what a run took, and keep the sessions for the next one.

    A session that cannot do that, because it still computes what was cancelled, is closed.
    """
    for step in (_start_release, Session.settle):  # all of them side by side
        for worker in workers:
            try:
                if not worker.session.closed:
                    step(worker.session)
            except CerebroError:
                worker.session.close()
    pool.give(worker.session for worker in workers)


_RELEASE = (
    "SELECT cerebro._release_worker(); SELECT pg_catalog.pg_advisory_unlock_all(); "
    "RESET synchronous_commit"
)


def _start_release(session: Session) -> None:
    session.settle()
    session.send(_RELEASE)


def _busy(session: Session) -> bool:
    try:
        return not session.advance()
    except CerebroError:
        return False
