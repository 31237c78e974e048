"""Direct workers beside worker sessions: they join a run from any machine, and make hops of it.

Such a worker is a process of ``cerebro worker``. It holds a lock for as long as its session is there, so that
its end is known at once. The driver gives it orders, rows of the catalog; it commits the state of a hop, the
hop's record and the answer to the order in one transaction. An order that was taken back can have no answer
any more: so it is always known whether a hop was made.
"""

from __future__ import annotations

import select
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from cerebro_db import errors
from cerebro_db.core.spec import TRAINING, Hop
from cerebro_db.core.state import RunState
from cerebro_db.core.strategies import Strategy
from cerebro_db.core.tasks import Failure, Outcome, Ready, Result, Task, Train, WorkerView
from cerebro_db.errors import (
    CerebroError,
    ConfigurationFailed,
    RunCancelled,
    TooManyConnections,
    TrainerLost,
)
from cerebro_db.executors.direct_order import Order
from cerebro_db.executors.sessions import WorkerSessions
from cerebro_db.executors.workers import RunResources, Worker
from cerebro_db.postgres.dialects.statements.orders import HopOrder
from cerebro_db.postgres.direct.board import DirectBoard, DirectRow, Given, anyone, revoke
from cerebro_db.postgres.sessions.session import POLL_SECONDS, Session
from cerebro_db.protocol import HandedBack, answer_of
from cerebro_db.wire import encode

# Between looks for workers that join, or that have gone; answers are notified.
_LOOK_SECONDS = 0.5
_MOST_TEXT = 1000
# In a row; then a worker is sent away.
_MOST_FAILURES = 3


@dataclass
class _DirectWorker(Worker):
    """A direct worker, and what is known of it.

    Attributes:
        session: the driver's own, by which it is spoken to.
        worker_id: of its row in the catalog.
        backend: process of the server that it is connected to.
        host: where it runs, as it tells.
        given: what it has to do; None for nothing.
        is_ready: whether its trainer is.
        is_cancelled: whether its order was taken back.
        failures: hops in a row that it could not make, for reasons of its own.
    """

    worker_id: int = 0
    backend: int = 0
    host: str = ""
    given: Given | None = None
    is_ready: bool = False
    is_cancelled: bool = False
    failures: int = 0

    @property
    def pid(self) -> int:
        """Process of the server that works for it."""
        return self.backend

    @property
    def name(self) -> str:
        """Name of the worker for people."""
        return f"direct worker {self.number} on {self.host}"


class DirectWorkers(WorkerSessions):
    """The worker sessions of one run, and direct workers, which only make hops.

    What a direct worker fails at, but for what is the model's own fault, is done again by a session: so a
    machine with too little memory fails no configuration. One that fails again and again is sent away.

    Args:
        resources: of the run.
        count: how many sessions; the numbers of direct workers begin with it.
        notify: gets notices of workers that come and go.
    """

    def __init__(self, resources: RunResources, count: int, notify: Callable[[str], None]) -> None:
        super().__init__(resources, count)
        self._notify = notify
        self._direct: dict[int, _DirectWorker] = {}  # by number
        self._board: DirectBoard | None = None
        # What a direct worker computes with is compared with what the sessions do.
        self._is_open = False
        self._next_look = 0.0

    # -- the port ----------------------------------------------------------------
    def free(self) -> list[WorkerView]:
        """The workers that can take a task now."""
        direct = [
            WorkerView(one.number, one.kept, only_hops=True)
            for one in self._direct.values()
            if one.is_ready and not one.is_busy
        ]
        return [*super().free(), *direct]

    @property
    def is_busy(self) -> bool:
        """True if a worker works, or gets ready."""
        return super().is_busy or any(one.is_busy for one in self._direct.values())

    def submit(self, state: RunState, worker: int, task: Task) -> None:
        """Send the statement of a task; give a direct worker its order."""
        found = self._direct.get(worker)
        if found is None:
            super().submit(state, worker, task)
            return
        assert isinstance(task, Train)
        assert self._board is not None
        found.task, found.is_busy, found.is_cancelled = task, True, False
        (order,) = self._orders.hops(state, found, task.hops)
        passes = state.tracks[order.mst_key].configuration.fit_params.epochs
        text = encode(_order_of(self._resources, order, passes))
        found.given = self._board.give(found.worker_id, text)

    def poll(self) -> Iterator[Outcome]:
        """Wait a moment; what has come of tasks meanwhile."""
        for outcome in super().poll():
            self._is_open = self._is_open or isinstance(outcome.result, Ready)
            yield outcome
        yield from self._heard()

    def cancel(self, worker: int) -> None:
        """Ask a worker to give up its task."""
        found = self._direct.get(worker)
        if found is None:
            super().cancel(worker)
        elif self._board is not None and found.given is not None:
            # One that cannot be taken back is done.
            found.is_cancelled = self._board.take_back(found.given)

    def stop(self) -> None:
        """Stop what workers do."""
        self._dismiss()
        super().stop()

    def give_back(self) -> None:
        """End the sessions of a run; direct workers wait for another driver."""
        self._dismiss()
        super().give_back()

    # -- direct workers ------------------------------------------------------------
    def _wait(self, busy: Sequence[Session]) -> None:
        """Wait a moment for sessions that work, or for news of direct workers."""
        if self._board is None or not self._direct:
            super()._wait(busy)
            return
        if self._board.session.has_notifications:
            return
        poller = select.poll()
        poller.register(self._board.session.fileno(), select.POLLIN)
        for session in busy:
            if session.busy and not session.closed:
                poller.register(session.fileno(), session.waits_for)
        poller.poll(POLL_SECONDS * 1000)

    def _heard(self) -> Iterator[Outcome]:
        """Answers of direct workers, and who comes and goes."""
        now = time.monotonic()
        cancelled = any(one.is_cancelled for one in self._direct.values())
        news = self._board is not None and self._board.has_news()
        if not self._is_open or not (news or cancelled or now >= self._next_look):
            return
        self._next_look = now + _LOOK_SECONDS
        if self._board is None:
            self._board = self._opened()
        if self._board is not None:
            yield from self._looked(self._board)

    def _opened(self) -> DirectBoard | None:
        """A session for direct workers, as soon as one wants to join; None where there is none to be had."""
        resources = self._resources
        if not anyone(resources.store.catalog.session, resources.run_id):
            return None
        try:
            (session,) = resources.pool.take(1)
        except TooManyConnections:  # they wait, and the run goes on without them
            return None
        return DirectBoard(session, resources.run_id, resources.dialect.held_locks)

    def _looked(self, board: DirectBoard) -> Iterator[Outcome]:
        # In this order: whoever has gone can answer no more.
        rows = {
            row.worker_id: row for row in board.workers() if row.is_there or self._ends(board, row)
        }
        answers = board.answers()
        done: list[int] = []
        for worker in list(self._direct.values()):
            row = rows.pop(worker.worker_id, None)
            task, given = worker.task, worker.given
            result = self._result_of(worker, row, answers)
            if result is not None and given is not None:
                done.append(given.order_id)
                yield Outcome(worker.number, task, result)
            self._stands(board, worker, row)
        if done:
            board.forget(done)
        for row in rows.values():
            if not row.is_admitted:
                self._admit(board, row)

    def _stands(self, board: DirectBoard, worker: _DirectWorker, row: DirectRow | None) -> None:
        """Take note of a worker that has left, or got ready; send one away that only fails."""
        if row is None:
            del self._direct[worker.number]
            self._notify(f"{worker.name} has left")
        elif worker.failures >= _MOST_FAILURES:
            board.departed(worker.worker_id, f"{worker.failures} hops in a row failed")
            worker.is_ready, worker.failures = False, 0
        elif not worker.is_ready and row.is_ready:
            worker.is_ready = True
            worker.free_since = time.monotonic()
            self._notify(f"{worker.name} has joined")

    def _ends(self, board: DirectBoard, row: DirectRow) -> bool:
        """Write down that the session of a worker has ended; it is there no more."""
        board.departed(row.worker_id, "its session has ended")
        return False

    def _admit(self, board: DirectBoard, row: DirectRow) -> None:
        taken = self._direct.keys()
        number = next(n for n in range(self._count, self._count + len(taken) + 1) if n not in taken)
        self._direct[number] = _DirectWorker(
            number, board.session, worker_id=row.worker_id, backend=row.pid, host=row.host
        )
        board.admit(row.worker_id, number, self._resources.preparation)

    def _result_of(
        self, worker: _DirectWorker, row: DirectRow | None, answers: Mapping[int, str]
    ) -> Result | None:
        """Result of an order; None while it is under way, or where there is none."""
        if worker.given is None or not isinstance(worker.task, Train):
            return None
        answer = answers.get(worker.given.order_id)
        result: Result
        if answer is not None:
            result = self._answer(worker, worker.task.hops, answer)
        elif worker.is_cancelled:
            result = _failure(RunCancelled("the hop was taken back"))
        elif row is None:
            result = _failure(TrainerLost(f"{worker.name} has gone, whose session has ended"))
        else:
            return None
        if isinstance(result, Failure):
            self._undone(worker)
            worker.kept = set()
        self._release(worker)
        worker.given, worker.is_cancelled = None, False
        return result

    def _answer(self, worker: _DirectWorker, hops: Sequence[Hop], text: str) -> Result:
        answer = answer_of(text)
        if isinstance(answer, HandedBack):
            error = answer.error[:_MOST_TEXT]
            if answer.is_of_the_model:
                return _failure(ConfigurationFailed(error, answer.hint))
            worker.failures += 1
            return _failure(errors.HandedBack(f"{worker.name}: {error}"))
        worker.failures = 0
        (hop,) = hops
        return self._trained(worker, hops, {hop.mst_key: answer})

    def _dismiss(self) -> None:
        """Take all orders back; whoever is there waits for another driver."""
        if self._board is None:
            return
        session = self._board.session
        with suppress(CerebroError):  # else the next driver does it
            session.reset()
            with session.undisturbed():
                revoke(session, self._resources.run_id)
                session.run("UNLISTEN *")
        session.close()
        self._board, self._direct = None, {}


def _failure(error: CerebroError) -> Failure:
    return Failure(error.message, error.sqlstate, error.hint, error)


def _order_of(resources: RunResources, order: HopOrder, passes: int) -> Order:
    """An order of values only, of which a worker makes statements of its own."""
    packed, training = resources.tables[TRAINING], resources.dialect.training
    assert order.target is not None
    return Order(
        run_id=order.run_id,
        mst_key=order.mst_key,
        epoch=order.epoch,
        position=order.position,
        partition_key=order.partition_key,
        version=order.version,
        makes=order.makes,
        segment_key=training.segment_of(packed, order.partition_key),
        goals=training.goals(packed, order),
        task=order.task,
        salt=order.salt,
        passes=passes,
        weights_of=order.weights_of,
        source=None if order.source is None else order.source.name,
        target=order.target.name,
        packed=packed.relation.name,
        oid=packed.relation.oid if packed.relation.kind == "r" else None,
        inputs=[one.name for one in packed.inputs],
        targets=[one.name for one in packed.targets],
        row_bytes=packed.row_bytes,
        rows=next(p.rows for p in packed.partitions if p.partition_key == order.partition_key),
    )


def make_executor(
    resources: RunResources, count: int, strategy: Strategy, notify: Callable[[str], None]
) -> WorkerSessions:
    """The workers of a run: sessions, and where its strategy allows that whoever joins it.

    Args:
        resources: of the run.
        count: how many sessions.
        strategy: of the run.
        notify: gets notices of workers that come and go.
    """
    if strategy.takes_joining_workers:
        return DirectWorkers(resources, count, notify)
    return WorkerSessions(resources, count)
