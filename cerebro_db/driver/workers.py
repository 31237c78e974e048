"""The worker sessions of a run."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from cerebro_db.database.catalog import Catalog
from cerebro_db.database.dialects.choice import PostgreSQL
from cerebro_db.database.dialects.postgresql_training import HopOrder, StateTables
from cerebro_db.database.packed import PackedTable
from cerebro_db.database.sessions import POLL_SECONDS, Session, SessionPool, Tick, wait_any
from cerebro_db.driver.control import NUMBER
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
        cancelled: whether that, or what it did before, has been asked to stop.
        is_ready: whether TensorFlow is there.
        partition_keys: of partitions that are its own; empty where any worker may have any.
        tables: of states, that the statement under way uses.
        target: the one of them that it writes to.
        orders: of the hops that it makes, by mst_key.
        sent: when they were sent, on the clock ``time.monotonic``.
    """

    number: int
    session: Session
    kept: set[str] = field(default_factory=set)
    free_since: float = field(default_factory=time.monotonic)
    job: Any = None
    cancelled: bool = False
    is_ready: bool = False
    partition_keys: Sequence[int] = ()
    tables: list[StateTable] = field(default_factory=list)
    target: StateTable | None = None
    orders: Mapping[int, HopOrder] = field(default_factory=dict)
    sent: float = 0.0

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
        pool: of the sessions of workers.
        store: where the states are.
        catalog: for plan and metrics; its session is not a worker's.
        dialect: of the server.
        packed: what is trained on.
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
    pool: SessionPool
    store: StateStore
    catalog: Catalog
    dialect: PostgreSQL
    packed: PackedTable
    requests: Requests
    guard_key: int
    cache_bytes: int
    preparation: str
    functions: Mapping[str, Any]
    manifest: Mapping[str, Any]
    tick: Tick
    notify: Callable[[str], None]


_PREPARE_PROCESS = "cerebro._prepare_process(cerebro._with_functions(%s))"


def take_workers(
    pool: SessionPool, count: int, threads: int, use_gpus: bool, tick: Tick
) -> list[Worker]:
    """Sessions whose TensorFlow is not loaded yet, or is loaded with the same settings."""
    wanted = (threads, use_gpus)

    def fits(session: Session) -> bool:
        return bool(session.facts.get("tensorflow", wanted) == wanted)

    def prefer(session: Session) -> tuple[float, bool]:
        return -session.facts.get(NUMBER, math.inf), "tensorflow" in session.facts

    numbered = _numbered(pool.take(count, fits, tick, prefer))
    for number, session in numbered.items():
        session.facts["tensorflow"] = wanted
        session.facts[NUMBER] = number
        # Only the end of its processes gives back the memory of a GPU.
        session.keep = not use_gpus
    return [Worker(number, numbered[number]) for number in range(count)]


def _numbered(sessions: Sequence[Session]) -> dict[int, Session]:
    """Each has the number that it had: where a worker is bound to partitions, its processes are too."""
    count = len(sessions)
    found: dict[int, Session] = {}
    others = []
    for session in sessions:
        number = session.facts.get(NUMBER, count)
        if number < count and number not in found:
            found[number] = session
        else:
            others.append(session)
    free = (number for number in range(count) if number not in found)
    return found | dict(zip(free, others, strict=True))


def is_calm(worker: Worker) -> bool:
    """Whether no cancel request of what a worker did can hit its next statement."""
    if worker.cancelled and not worker.partition_keys:
        worker.session.recover()
        worker.cancelled = False
    return not worker.cancelled


def renew(worker: Worker, context: RunContext) -> None:
    """Give a worker another session, and send what prepares it.

    A process of a segment keeps an interrupt that comes when its function has ended, for the next one.
    """
    (session,) = context.pool.take(1, lambda idle: False, context.tick)
    session.facts.update(worker.session.facts)
    session.keep = worker.session.keep
    worker.session.close()
    worker.session, worker.kept, worker.cancelled = session, set(), False
    start_preparing(worker, context)


def start_preparing(worker: Worker, context: RunContext) -> None:
    """Send what makes a session, or its processes on segments, a worker.

    While it works for the run it shares a lock: whoever goes on with the run waits for that, so
    that no hop of a driver that is gone can be committed later.
    """
    sql = context.dialect.training
    prepare, parameters = _preparation(worker, context)
    worker.session.send(
        f"{sql.worker_settings(context.states)}; SELECT pg_catalog.pg_advisory_lock_shared(%s); {prepare}",
        (context.guard_key, *parameters),
    )


def _preparation(worker: Worker, context: RunContext) -> tuple[str, Sequence[Any]]:
    if worker.partition_keys:
        return call(worker, context, _PREPARE_PROCESS, [context.preparation])
    threads, use_gpus = worker.session.facts["tensorflow"]
    return (
        "SELECT cerebro._prepare_worker(%s, %s, %s, %s, %s)",
        (threads, use_gpus, context.cache_bytes, context.run_id, worker.number),
    )


def call(
    worker: Worker, context: RunContext, function: str, parameters: Sequence[Any] = ()
) -> tuple[str, Sequence[Any]]:
    """The statement that calls a function wherever a worker trains."""
    return context.dialect.training.call(
        context.packed, worker.partition_keys, function, parameters
    )


def call_once(
    worker: Worker, context: RunContext, function: str, task: str
) -> tuple[str, Sequence[Any]]:
    """The statement that has a function do a task where a worker trains, in one process."""
    parameters = [task]
    if worker.partition_keys:  # a statement that failed may have taken the process with it
        function = f"CASE WHEN {_PREPARE_PROCESS} IS NOT NULL THEN {function} END"
        parameters = [context.preparation, task]
    return context.dialect.training.call(
        context.packed, worker.partition_keys[:1], function, parameters
    )


def manifests_of(worker: Worker) -> list[dict[str, Any]]:
    """What each process of a worker that is ready told about itself."""
    return [json.loads(text) for (text,) in worker.session.rows()]


def stop(workers: list[Worker], context: RunContext) -> None:
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
            worker.session.recover()
    give_back(workers, context)


def give_back(workers: list[Worker], context: RunContext) -> None:
    """Release what a run took, and keep the sessions for the next one.

    A session that cannot do that, because it still computes what was cancelled, is closed. So is
    one with a GPU, whose memory is free only when the processes end.
    """
    for step in (_start_release, _settle):  # all of them side by side
        for worker in workers:
            try:
                if not worker.session.closed:
                    step(worker, context)
            except CerebroError:
                worker.session.close()
    for worker in workers:
        if worker.session.facts.get("tensorflow", (0, False))[1]:
            worker.session.close()
    context.pool.give(worker.session for worker in workers)


def _start_release(worker: Worker, context: RunContext) -> None:
    if not is_calm(worker):
        worker.session.close()
        return
    worker.session.settle()
    sql, parameters = call(worker, context, "cerebro._release_worker()")
    after = context.dialect.training.worker_settings_after
    worker.session.send(f"SELECT pg_catalog.pg_advisory_unlock_all(); {after}; {sql}", parameters)


def _settle(worker: Worker, context: RunContext) -> None:
    worker.session.settle()


def _busy(session: Session) -> bool:
    try:
        return not session.advance()
    except CerebroError:
        return False
