"""The worker sessions of a run: an executor whose tasks are statements."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from cerebro_db.core.spec import TRAINING, Hop
from cerebro_db.core.state import RunState
from cerebro_db.core.tasks import (
    Answered,
    Average,
    Averaged,
    Combine,
    Failure,
    HopResult,
    Outcome,
    Participate,
    Ready,
    Result,
    Scan,
    Scanned,
    Score,
    Step,
    Sums,
    Task,
    Train,
    Trained,
    TryScoring,
    WorkerView,
    WriteEvents,
    round_record,
)
from cerebro_db.errors import CerebroError, InvalidData, OutOfMemory, TrainerLost
from cerebro_db.executors.hop_orders import OrderWriter
from cerebro_db.executors.process_groups import ProcessGroup, ProcessGroups
from cerebro_db.executors.workers import RunResources, Worker
from cerebro_db.postgres.dialects.segments.rotation import Rotation
from cerebro_db.postgres.dialects.statements.orders import Statement, made
from cerebro_db.postgres.sessions.errors import StatementFailed
from cerebro_db.postgres.sessions.session import POLL_SECONDS, Session, wait_any
from cerebro_db.postgres.tables.fingerprint import cause_of
from cerebro_db.postgres.tables.packed import PackedTable
from cerebro_db.protocol import HopFailed, StateMade, StateReport, report_of

# A worker that has not stopped then is left to itself.
STOP_SECONDS = 1.0
WRITE_EVENTS = "SELECT cerebro._write_events(%s)"
_PREPARE_PROCESS = "cerebro._prepare_process(cerebro._with_functions(%s))"


class WorkerSessions:
    """Executor whose workers are sessions of the server, each with a trainer beside it.

    Args:
        resources: of the run.
        count: how many.
    """

    def __init__(self, resources: RunResources, count: int) -> None:
        self._resources, self._sql, self._count = resources, resources.dialect.training, count
        self._workers: list[Worker] = []
        self._orders = OrderWriter(resources)
        self._groups = ProcessGroups(resources, self._workers, self._orders)
        self._ticked = 0.0
        # When each partition's process had its part of the last step done.
        self._free_since: dict[int, float] = {}

    # -- the port ----------------------------------------------------------------
    def start(self) -> None:
        """Take sessions, and have them get ready."""
        sessions = self._resources.pool.take(self._count)
        self._workers += [Worker(number, session) for number, session in enumerate(sessions)]
        for worker in self._workers:
            if self._sql.binds_workers:
                self._bind(worker)
            self._prepare(worker)

    def _bind(self, worker: Worker) -> None:
        """Give a worker its partitions; where rows move to it, its home, and the partition there."""
        partitions = self._packed.partitions
        if self._resources.moves_rows:
            worker.home = partitions[worker.number % len(partitions)]
            worker.partition_keys = [worker.home.partition_key]
        else:
            keys = [partition.partition_key for partition in partitions]
            worker.partition_keys = [key for key in keys if key % self._count == worker.number]

    def free(self) -> list[WorkerView]:
        """The workers that can take a task now."""
        for worker in self._workers:
            if not worker.is_busy and worker.unprepared:
                self._renew(worker)
        if self._resources.hosts and self._groups.are_waited_for():
            return []
        return [WorkerView(one.number, one.kept) for one in self._workers if not one.is_busy]

    @property
    def is_busy(self) -> bool:
        """True if a worker works, or gets ready."""
        return any(worker.is_busy for worker in self._workers)

    def submit(self, state: RunState, worker: int, task: Task) -> None:
        """Send the statement of a task."""
        found = self._workers[worker]
        found.task, found.is_busy = task, True
        found.session.send(*self._statement(state, found, task))

    def poll(self) -> Iterator[Outcome]:
        """Wait a moment; what has come of tasks meanwhile."""
        busy = [worker for worker in self._workers if worker.is_busy]
        self._wait([worker.session for worker in busy])
        now = time.monotonic()
        if now - self._ticked >= POLL_SECONDS:
            self._resources.pool.tick()
            self._ticked = now
        for worker in busy:
            task, is_trying = worker.task, worker.is_trying
            result = self._advanced(worker)
            if is_trying:
                result = self._groups.reached(result)
            if result is not None:
                yield Outcome(worker.number, task, result)

    def _wait(self, busy: Sequence[Session]) -> None:
        """Wait a moment for sessions that work; as long where none does."""
        if busy:
            wait_any(busy, POLL_SECONDS)
        else:
            time.sleep(POLL_SECONDS)

    def cancel(self, worker: int) -> None:
        """Ask the server to cancel what a worker does."""
        found = self._workers[worker]
        found.session.cancel()
        found.unprepared = True

    # -- statements ----------------------------------------------------------------
    def _statement(self, state: RunState, worker: Worker, task: Task) -> Statement:
        match task:
            case Train(hops):
                orders = self._orders.hops(state, worker, hops)
                return self._sql.hops(self._packed, orders)
            case Step(hops):
                orders = self._orders.hops(state, worker, hops)
                return self._rotation.step(self._packed, orders)
            case Participate():
                return self._participate(state, worker, task)
            case Average():
                return self._sql.average(self._packed, self._orders.average(state, worker, task))
            case Score(scans):
                return self._scoring(state, worker, scans, together=task.together)
            case _:
                return self._once(state, worker, task)

    def _once(
        self, state: RunState, worker: Worker, task: Combine | TryScoring | WriteEvents
    ) -> Statement:
        """The statement of a task that one process does, whatever partitions it has."""
        match task:
            case Combine(group, dataset):
                scored = {
                    key: track.configuration
                    for key, track in state.tracks.items()
                    if not track.ended
                }
                text = self._resources.tasks.combination(group, dataset, scored)
                return self._call_once(worker, "cerebro._combine_measures(%s)", text)
            case TryScoring(mst_keys):
                text = self._resources.tasks.trial(
                    state.tracks[key].configuration for key in mst_keys
                )
                return self._call_once(worker, "cerebro._try_scores(%s)", text)
            case WriteEvents(text):
                return WRITE_EVENTS, [text]

    @property
    def _packed(self) -> PackedTable:
        return self._resources.tables[TRAINING]

    @property
    def _rotation(self) -> Rotation:
        found = self._resources.dialect.rotation
        assert found is not None
        return found

    def _participate(self, state: RunState, worker: Worker, task: Participate) -> Statement:
        """The statement of a participant of a round; that of the root, the last one, leaves the state."""
        store, spec, hop = self._resources.store, state.spec, task.own
        if not state.tracks[hop.mst_key].begun:
            self._groups.under_way[hop.mst_key] = ProcessGroup()
        group = self._groups.under_way[hop.mst_key]
        source = store.of((hop.mst_key, spec.base(hop)))
        worker.target = store.target(spec.left(hop)) if task.is_root else None
        worker.tables = store.use([source, worker.target])
        part = self._orders.part(state, hop)
        assert part is not None
        part = part._replace(group=self._groups.description(state, task, group))
        order = self._orders.hop(state, worker, hop, source, worker.target, part)
        self._orders.taken(worker, [order])
        group.waited[task.rank] = worker.sent - worker.free_since
        if not task.is_root:
            return self._sql.share(self._packed, order)
        if spec.strategy.has_weight_server and not self._resources.rounds.is_recorded(spec, hop):
            group.recorded = spec.round_of(hop)
        return self._sql.hop(self._packed, order)

    def _scoring(
        self, state: RunState, worker: Worker, scans: Sequence[Scan], *, together: bool
    ) -> Statement:
        orders = [self._orders.scan(state, worker, scan) for scan in scans]
        packed = self._resources.tables[scans[0].dataset]
        if together:
            return self._rotation.sweep(packed, orders)
        (order,) = orders
        return self._sql.scan(packed, order)

    def _call(self, worker: Worker, function: str, parameters: Sequence[Any] = ()) -> Statement:
        """Call a function wherever a worker trains."""
        return self._sql.call(self._packed, worker.partition_keys, function, parameters)

    def _call_once(self, worker: Worker, function: str, task: str) -> Statement:
        """Have a function do a task where a worker trains, in one process."""
        parameters = [task]
        if worker.partition_keys:  # a statement that failed may have taken the process with it
            function = f"CASE WHEN {_PREPARE_PROCESS} IS NOT NULL THEN {function} END"
            parameters = [self._resources.preparation, task]
        return self._sql.call(self._packed, worker.partition_keys[:1], function, parameters)

    # -- results ---------------------------------------------------------------------
    def _advanced(self, worker: Worker) -> Result | None:
        """Result of a statement, None while it is under way."""
        try:
            if not worker.session.advance():
                return None
        except StatementFailed as error:
            self._undone(worker)
            worker.kept = set()  # a statement that failed may have driven partitions out of memory
            worker.unprepared = worker.unprepared or self._is_without_trainer(worker, error)
            # Its process on the segment may be another one by now, and its trainer elsewhere.
            worker.unprepared = worker.unprepared or bool(self._resources.hosts)
            cause = self._cause(worker.task, error)
            result: Result | None = Failure(cause.message, cause.sqlstate, cause.hint, cause)
        else:
            try:
                result = self._result(worker, worker.session.rows())
            except InvalidData as error:
                raise self._cause(worker.task, error) from None
        self._release(worker)
        return result

    def _cause(self, task: Task | None, error: CerebroError) -> CerebroError:
        """The error of a statement, or of the packed table that has lost its name."""
        if not isinstance(task, Train | Step | Participate | Score):
            return error
        datasets = {scan.dataset for scan in task.scans} if isinstance(task, Score) else {TRAINING}
        relations = [self._resources.tables[name].relation for name in sorted(datasets)]
        return cause_of(error, self._resources.store.catalog.session, relations)

    @staticmethod
    def _is_without_trainer(worker: Worker, error: CerebroError) -> bool:
        """True if a worker has lost its trainer by what it did; on segments each statement makes one ready."""
        ended = error.sqlstate == OutOfMemory.sqlstate and not worker.partition_keys
        return ended or error.sqlstate == TrainerLost.sqlstate

    def _result(self, worker: Worker, rows: list[tuple[Any, ...]]) -> Result | None:
        match worker.task:
            case None:
                return self._ready(worker, [json.loads(text) for (text,) in rows])
            case Train(hops):
                return self._trained(worker, hops, made(rows))
            case Step(hops):
                return self._stepped(worker, hops, rows)
            case Participate():
                return self._shared(worker, worker.task, rows)
            case Average():
                return self._averaged(worker, sum(int(size) for (size,) in rows))
            case Score(scans):
                together = worker.task.together
                texts = dict(rows) if together else {scans[0].partition_key: rows[0][0]}
                return Sums(tuple(self._sums(worker, scan, texts, together) for scan in scans))
            case WriteEvents():
                return Answered(None)
        return Answered(json.loads(rows[0][0]))

    def _ready(self, worker: Worker, answers: list[Any]) -> Ready | None:
        """A worker is ready, or has looked whether it can reach the others."""
        if worker.is_trying:
            self._groups.complain(answers)
            return None
        for manifest in answers:
            worker.address = manifest.pop("address", None)
        return Ready(answers)

    def _undone(self, worker: Worker) -> None:
        """The statement of a worker has left nothing."""
        if worker.target is not None:
            for _ in range(len(worker.orders) + (worker.average is not None)):
                self._resources.store.failed(worker.target)

    def _release(self, worker: Worker) -> None:
        self._resources.store.give_back(worker.tables)
        worker.tables, worker.target, worker.orders, worker.average = [], None, {}, None
        worker.task, worker.is_busy, worker.is_trying = None, False, False
        worker.free_since = time.monotonic()

    def _trained(
        self, worker: Worker, hops: Sequence[Hop], found: Mapping[int, StateMade | HopFailed]
    ) -> Trained:
        """Hops that were made one after another, by mst_key in their order."""
        states = {hop: _state(found, hop) for hop in sorted(hops, key=lambda hop: hop.mst_key)}
        own = {hop: _own_seconds(state) for hop, state in states.items()}
        # What the statement took beside them is shared by all of them; only the first one has waited.
        left = time.monotonic() - worker.sent - sum(own.values())
        share = max(left, 0.0) / len(hops)
        results, sent, waited = [], worker.sent, worker.sent - worker.free_since
        for hop, state in states.items():
            worker.keep(state.report.kept)
            # When the row of a state came, others had trained.
            one = msgspec.structs.replace(state, written=share) if len(hops) > 1 else state
            results.append(self._left(worker, hop, one, waited, sent, own[hop] + share))
            sent, waited = sent + own[hop] + share, 0.0
        return Trained(tuple(results))

    def _stepped(self, worker: Worker, hops: Sequence[Hop], rows: list[tuple[Any, ...]]) -> Trained:
        """Hops that were made side by side, some of which may have failed by themselves."""
        ended, found = time.monotonic(), made(rows)
        # A hop ends when its own training does; the rest of the step is the same for all of them.
        longest = max(map(_own_seconds, found.values()), default=0.0)
        results, failed = [], []
        for hop in hops:
            state = found.get(hop.mst_key) or _no_rows(hop)
            waits = longest - _own_seconds(state)
            since = self._free_since.get(hop.partition_key, worker.free_since)
            self._free_since[hop.partition_key] = ended - waits
            if isinstance(state, StateMade):
                worker.keep_of(hop.partition_key, state.report.kept)
                waited, seconds = worker.sent - since, ended - worker.sent - waits
                results.append(self._left(worker, hop, state, waited, worker.sent, seconds))
            else:
                worker.keep_of(hop.partition_key, ())
                assert worker.target is not None
                self._resources.store.failed(worker.target)
                failed.append((hop, Failure(state.message, state.sqlstate, state.hint)))
        return Trained(tuple(results), tuple(failed))

    def _left(
        self,
        worker: Worker,
        hop: Hop,
        state: StateMade,
        waited: float,
        sent: float,
        seconds: float,
    ) -> HopResult:
        """Take note of the state that a hop left; its record."""
        assert worker.target is not None
        makes = worker.orders[hop.mst_key].makes
        self._resources.store.wrote(worker.target, (hop.mst_key, makes), state.size)
        (report,) = state.report.hops
        return HopResult(hop, report, waited, sent, seconds, state.written)

    def _shared(self, worker: Worker, task: Participate, rows: list[tuple[Any, ...]]) -> Trained:
        """Hops that were made together, from the worker that has led them; of others none."""
        if not task.is_root:
            own = report_of(rows[0][0])
            worker.keep(own.kept if isinstance(own, StateReport) else ())
            return Trained(())
        assert worker.target is not None
        (order,) = worker.orders.values()
        group, state = self._groups.under_way.pop(order.mst_key), _state(made(rows), task.own)
        report, course = state.report, state.report.round
        worker.keep(report.kept)
        self._resources.store.wrote(worker.target, (order.mst_key, order.makes), state.size)
        seconds = time.monotonic() - worker.sent
        results = [
            HopResult(hop, one, group.waited[rank], worker.sent, seconds, state.written)
            for rank, (hop, one) in enumerate(zip(task.hops, report.hops, strict=True))
        ]
        if course is None or group.recorded is None:
            return Trained(tuple(results))
        self._resources.rounds.note(order.mst_key, course.groups, course.momentum)
        record = round_record(order.mst_key, order.epoch, group.recorded, course)
        return Trained(tuple(results), record=record)

    def _averaged(self, worker: Worker, size: int) -> Averaged:
        """Take note of the state that an average left."""
        assert worker.target is not None
        assert worker.average is not None
        key = worker.average.mst_key, worker.average.makes
        self._resources.store.wrote(worker.target, key, size)
        return Averaged()

    def _sums(
        self, worker: Worker, scan: Scan, texts: Mapping[int, str], together: bool
    ) -> Scanned:
        result = json.loads(texts[scan.partition_key])
        if together:
            worker.keep_of(scan.partition_key, result["kept"])
        else:
            worker.keep(result["kept"])
        partials = {int(key): value for key, value in result["partials"].items()}
        errors = {int(key): value for key, value in result["errors"].items()}
        return Scanned(scan, partials, errors)

    # -- sessions ----------------------------------------------------------------------
    def _prepare(self, worker: Worker) -> None:
        """Send what makes a session, or its processes on segments, a worker.

        While it works for the run it shares a lock: whoever goes on with the run waits for that, so
        that no hop of a driver that is gone can be committed later.
        """
        resources = self._resources
        prepare, parameters = self._preparation(worker)
        worker.task, worker.is_busy = None, True
        worker.session.send(
            f"{self._sql.worker_settings(resources.states)}; "
            f"SELECT pg_catalog.pg_advisory_lock_shared(%s); {prepare}",
            (resources.guard_key, *parameters),
        )

    def _preparation(self, worker: Worker) -> Statement:
        resources = self._resources
        if worker.partition_keys:
            return self._call(worker, _PREPARE_PROCESS, [resources.preparation])
        return (
            "SELECT cerebro._prepare_worker(%s, %s, %s, %s, %s, %s)",
            [
                resources.threads,
                resources.use_gpus,
                resources.cache_bytes,
                resources.run_id,
                worker.number,
                resources.frameworks,
            ],
        )

    def _renew(self, worker: Worker) -> None:
        """Prepare a worker again, in another session.

        A cancel request of what it did before could hit the next statement of the old one.
        """
        resources = self._resources
        worker.session.close()
        (worker.session,) = resources.pool.take(1)
        worker.kept, worker.unprepared = set(), False
        self._prepare(worker)

    def stop(self) -> None:
        """Stop what workers do; their trainers are ended if they do not notice that soon."""
        for worker in self._workers:
            worker.session.cancel()
        deadline = time.monotonic() + STOP_SECONDS
        while time.monotonic() < deadline and any(_works(one.session) for one in self._workers):
            wait_any([worker.session for worker in self._workers], POLL_SECONDS)
        self.give_back()

    def give_back(self) -> None:
        """End the sessions of a run; idle trainers stay with their keeper for the next one."""
        for worker in self._workers:
            worker.session.close()


def _works(session: Session) -> bool:
    try:
        return not session.advance()
    except CerebroError:
        return False


def _own_seconds(state: StateMade | HopFailed) -> float:
    """Seconds of the hop's own work; none where it failed."""
    if isinstance(state, HopFailed):
        return 0.0
    return sum(one.read_seconds + one.train_seconds for one in state.report.hops)


def _state(found: Mapping[int, StateMade | HopFailed], hop: Hop) -> StateMade:
    """The state of a hop that cannot have failed by itself."""
    state = found.get(hop.mst_key) or _no_rows(hop)
    assert isinstance(state, StateMade)
    return state


def _no_rows(hop: Hop) -> Any:
    """Raise the error of a partition that somebody has emptied."""
    raise InvalidData(
        f"source_table: got no rows of partition {hop.partition_key}; allowed: to go on with the "
        "same rows only",
        hint="start a new run",
    )
