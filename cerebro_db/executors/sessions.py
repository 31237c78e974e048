"""The worker sessions of a run: an executor whose tasks are statements."""

from __future__ import annotations

import json
import math
import secrets
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from cerebro_db.core.rounds import rows_of_round
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
    Score,
    Step,
    Sums,
    Task,
    Train,
    Trained,
    TryScoring,
    WorkerView,
    WriteEvents,
)
from cerebro_db.decide.plan import next_partitions
from cerebro_db.errors import CerebroError, InvalidData, OutOfMemory, PeersApart, TrainerLost
from cerebro_db.executors.served import ServedRounds
from cerebro_db.executors.tasks import RoundPart, TaskWriter
from cerebro_db.postgres.dialects.choice import PostgreSQL
from cerebro_db.postgres.dialects.postgresql.training import (
    AverageOrder,
    HopMade,
    HopOrder,
    Member,
    RotationStatements,
    ScanOrder,
    Statement,
    StateTables,
    checked,
)
from cerebro_db.postgres.packed import PackedTable, PartitionInfo
from cerebro_db.postgres.sessions import (
    POLL_SECONDS,
    Session,
    SessionPool,
    StatementFailed,
    wait_any,
)
from cerebro_db.postgres.states import StateStore, StateTable

# A worker that has not stopped then is left to itself.
STOP_SECONDS = 1.0
_MOST_TOLD = 3
# Looks whether trainers of several hosts reach each other, and what one of them may end with.
_LOOKS = 2
_PASSING = (TrainerLost.sqlstate, PeersApart.sqlstate)
WRITE_EVENTS = "SELECT cerebro._write_events(%s)"
_PREPARE_PROCESS = "cerebro._prepare_process(cerebro._with_functions(%s))"


@dataclass(frozen=True)
class Workplace:
    """Everything that the sessions of a run work with.

    Attributes:
        run_id: of the catalog.
        states: the names of its tables of states.
        tables: the packed table of each data set.
        tasks: writes what workers are told.
        pool: of sessions.
        store: where the states are.
        threads: of each trainer.
        use_gpus: whether trainers compute on GPUs.
        guard_key: of the advisory lock that workers share while they work for the run.
        cache_bytes: of decoded partitions that each worker may keep.
        preparation: JSON of what makes a process of a worker's session ready.
        hosts: of each partition, where trainers of several exchange gradients; else nothing.
        rounds: those that are recorded, where one trainer of a round holds the weights.
        moves_rows: whether a worker computes in one place, and the rows of other partitions are moved there.
    """

    run_id: int
    states: StateTables
    tables: Mapping[str, PackedTable]
    tasks: TaskWriter
    pool: SessionPool
    store: StateStore
    dialect: PostgreSQL
    threads: int
    use_gpus: bool
    guard_key: int
    cache_bytes: int
    preparation: str
    hosts: Mapping[int, str] = field(default_factory=dict)
    rounds: ServedRounds = field(default_factory=ServedRounds)
    moves_rows: bool = False


@dataclass
class _Worker:
    """One worker session and what is known of it.

    Attributes:
        number: from 0.
        kept: data set and key of the partitions that it has decoded in memory.
        free_since: when it last had nothing to do.
        is_busy: whether it does its task, or gets ready where there is none.
        unprepared: whether its trainer has ended, or has been asked to.
        partition_keys: of partitions that are its own; empty where any worker may have any.
        home: the one beside whose rows its trainer is, where those of the others are moved there.
        tables: of states, that the statement under way uses.
        target: the one of them that it writes to.
        orders: of the hops that it makes, by mst_key.
        average: what it averages.
        address: where trainers of other hosts find its trainer.
        is_trying: whether it looks if they can be reached.
        sent: when they were sent.
    """

    number: int
    session: Session
    kept: set[tuple[str, int]] = field(default_factory=set)
    free_since: float = field(default_factory=time.monotonic)
    task: Task | None = None
    is_busy: bool = False
    unprepared: bool = False
    partition_keys: Sequence[int] = ()
    home: PartitionInfo | None = None
    tables: list[StateTable] = field(default_factory=list)
    target: StateTable | None = None
    orders: Mapping[int, HopOrder] = field(default_factory=dict)
    average: AverageOrder | None = None
    address: Mapping[str, Any] | None = None
    is_trying: bool = False
    sent: float = 0.0


@dataclass
class _Meeting:
    """Meeting point of the trainers of a round, and whose they are.

    Attributes:
        members: workers that have joined, by their places.
        recorded: number of the round in its epoch, where its course is to be recorded.
    """

    name: str = field(default_factory=lambda: f"cerebro-{secrets.token_hex(16)}")
    secret: str = field(default_factory=lambda: secrets.token_hex(32))
    members: dict[int, Member] = field(default_factory=dict)
    recorded: int | None = None


class WorkerSessions:
    """The workers of one run.

    Args:
        place: what they work with.
        count: how many.
    """

    def __init__(self, place: Workplace, count: int) -> None:
        self._place, self._sql, self._count = place, place.dialect.training, count
        self._workers: list[_Worker] = []
        self._ticked = 0.0
        # When each partition's process had its part of the last step done.
        self._free_since: dict[int, float] = {}
        # Of the rounds under way whose hops are made together, by configuration.
        self._meetings: dict[int, _Meeting] = {}
        # Whether trainers of several hosts reach each other: looks so far, and what the last one has told,
        # by the place that cannot be reached.
        self._looks, self._is_reached = 0, False
        self._apart: list[tuple[int, str]] = []

    # -- the port ----------------------------------------------------------------
    def start(self) -> None:
        """Take sessions, and have them get ready."""
        place, count = self._place, self._count
        sessions = place.pool.take(count)
        self._workers = [_Worker(number, session) for number, session in enumerate(sessions)]
        for worker in self._workers:
            if self._sql.binds_workers:
                self._bind(worker)
            self._prepare(worker)

    def _bind(self, worker: _Worker) -> None:
        """Give a worker its partitions; where rows move to it, its home, and the partition there."""
        partitions = self._packed.partitions
        if self._place.moves_rows:
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
        if self._place.hosts and self._waits_for_peers():
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
            self._place.pool.tick()
            self._ticked = now
        for worker in busy:
            task, is_trying = worker.task, worker.is_trying
            result = self._advanced(worker)
            if is_trying:
                result = self._seen(result)
            if result is not None:
                yield Outcome(worker.number, task, result)

    def _wait(self, busy: Sequence[Session]) -> None:
        """Wait a moment for sessions that work."""
        wait_any(busy, POLL_SECONDS)

    def cancel(self, worker: int) -> None:
        """Ask the server to cancel what a worker does."""
        found = self._workers[worker]
        found.session.cancel()
        found.unprepared = True

    # -- statements ----------------------------------------------------------------
    def _statement(self, state: RunState, worker: _Worker, task: Task) -> Statement:
        match task:
            case Train(hops):
                first, *others = self._orders(state, worker, hops)
                # Nobody waits between them.
                orders = [first, *(replace(order, waited=0.0) for order in others)]
                return self._checked(self._sql.hops(self._packed, self._told(worker, orders)))
            case Step(hops):
                orders = [self._timed(one) for one in self._orders(state, worker, hops)]
                return self._checked(self._rotation.step(self._packed, self._told(worker, orders)))
            case Participate():
                return self._checked(self._share(state, worker, task))
            case Average():
                return self._sql.average(self._packed, self._average_order(state, worker, task))
            case Score(scans):
                return self._scoring(state, worker, scans, together=task.together)
            case _:
                return self._once(state, worker, task)

    def _once(
        self, state: RunState, worker: _Worker, task: Combine | TryScoring | WriteEvents
    ) -> Statement:
        """The statement of a task that one process does, whatever partitions it has."""
        match task:
            case Combine(group, dataset):
                scored = {
                    key: track.configuration
                    for key, track in state.tracks.items()
                    if not track.ended
                }
                text = self._place.tasks.combination(group, dataset, scored)
                return self._call_once(worker, "cerebro._combine_measures(%s)", text)
            case TryScoring(mst_keys):
                text = self._place.tasks.trial(state.tracks[key].configuration for key in mst_keys)
                return self._call_once(worker, "cerebro._try_scores(%s)", text)
            case WriteEvents(text):
                return WRITE_EVENTS, [text]

    def _checked(self, statement: Statement) -> Statement:
        return checked(self._packed, statement)

    @property
    def _packed(self) -> PackedTable:
        return self._place.tables[TRAINING]

    @property
    def _rotation(self) -> RotationStatements:
        found = self._place.dialect.rotation
        assert found is not None
        return found

    def _orders(self, state: RunState, worker: _Worker, hops: Sequence[Hop]) -> list[HopOrder]:
        """Orders of hops, by ascending mst_key; the tables that they use are the worker's."""
        store, spec = self._place.store, state.spec
        sources = {hop: store.of((hop.mst_key, spec.base(hop))) for hop in hops}
        # One statement writes one table: where one of the states must last, all of them do.
        target = store.target(*map(spec.left, hops))
        worker.target, worker.tables = target, store.use([*sources.values(), target])
        orders = [
            self._order(state, worker, hop, sources[hop], target, self._part(state, hop))
            for hop in sorted(hops, key=lambda hop: hop.mst_key)
        ]
        return orders

    def _told(self, worker: _Worker, orders: list[HopOrder]) -> list[HopOrder]:
        """Remember what a worker is told to do."""
        worker.orders = {order.mst_key: order for order in orders}
        worker.sent = time.monotonic()
        return orders

    def _order(
        self,
        state: RunState,
        worker: _Worker,
        hop: Hop,
        source: StateTable | None,
        target: StateTable | None,
        part: RoundPart | None,
    ) -> HopOrder:
        place, track = self._place, state.tracks[hop.mst_key]
        one, version = track.configuration, state.spec.base(hop)
        starts_from_weights = version == 0 and one.architecture.has_weights
        rate = track.verdict.learning_rate
        following = next_partitions(state, hop)
        return HopOrder(
            source=source.name if source else None,
            target=target.name if target else None,
            run_id=place.run_id,
            mst_key=hop.mst_key,
            epoch=hop.epoch,
            position=hop.position,
            partition_key=hop.partition_key,
            version=version,
            makes=state.spec.left(hop),
            next_partition_key=following[0] if following else None,
            others=following[1:],
            worker=worker.number,
            waited=time.monotonic() - worker.free_since,
            task=place.tasks.hop(
                one,
                hop,
                is_first=version == 0,
                begins_epoch=state.spec.begins_epoch(hop),
                learning_rate=rate,
                part=part,
            ),
            salt=place.tasks.salt(hop) if one.fit_params.shuffle else None,
            passes=1 if self._fits(hop.partition_key) else one.fit_params.epochs,
            reads=(TRAINING, hop.partition_key) not in worker.kept,
            weights_of=one.architecture.model_id if starts_from_weights else None,
            preparation=place.preparation,
            home=worker.home,
        )

    def _part(self, state: RunState, hop: Hop) -> RoundPart | None:
        """The part of a hop in a round of several; None where hops follow each other."""
        size = state.spec.round_size(hop)
        if size == 1 and not state.spec.is_joined(hop):
            return None
        place = hop.position % size
        return RoundPart(place, self._rows_of(state, hop), state.spec.strategy.resets)

    def _share(self, state: RunState, worker: _Worker, task: Participate) -> Statement:
        """The statement of a share of a round; of the last one that joins, which leaves the state."""
        store, spec, hop = self._place.store, state.spec, task.own
        if not state.tracks[hop.mst_key].begun:
            self._meetings[hop.mst_key] = _Meeting()
        meeting = self._meetings[hop.mst_key]
        source = store.of((hop.mst_key, spec.base(hop)))
        worker.target = store.target(spec.left(hop)) if task.is_root else None
        worker.tables = store.use([source, worker.target])
        part = self._part(state, hop)
        assert part is not None
        part = replace(part, group=self._group(state, task, meeting))
        order = self._order(state, worker, hop, source, worker.target, part)
        meeting.members[task.rank] = Member(
            hop.position, hop.partition_key, worker.number, worker.session.pid, order.waited
        )
        self._told(worker, [order])
        if not task.is_root:
            return self._sql.share(self._packed, order)
        members = [meeting.members[place] for place in range(len(task.hops))]
        if spec.strategy.has_weight_server and not self._place.rounds.is_recorded(spec, hop):
            meeting.recorded = spec.round_of(hop)
        return self._sql.lead(self._packed, order, members, meeting.recorded)

    def _waits_for_peers(self) -> bool:
        """True if nobody can begin a round yet, as not all trainers are where the others are told."""
        if any(worker.is_busy and worker.task is None for worker in self._workers):
            return True
        if self._is_reached:
            return False
        self._try_peers()
        return True

    def _try_peers(self) -> None:
        """Have all trainers look whether they can reach each other, before any hop."""
        self._looks, self._apart = self._looks + 1, []
        meeting = _Meeting()
        keys = sorted(self._place.hosts)
        for place, key in enumerate(keys):
            worker = self._worker_of(key)
            told = self._told_of(meeting, keys) | {"rank": place, "is_root": False, "bits": 32}
            worker.is_busy = worker.is_trying = True
            sql = self._call(worker, "cerebro._try_peers(%s)", [json.dumps(told)])
            worker.session.send(*sql)

    def _seen(self, result: Result | None) -> Result | None:
        """Take note of what a trainer has seen; when all have looked and not all is well they do so once more.

        A trainer that was lost or late meanwhile is another one then.

        Raises:
            PeersApart: from where to where there is no way.
        """
        if isinstance(result, Failure):
            if result.sqlstate not in _PASSING:
                return result
            self._apart.append((-1, result.message))
        if any(worker.is_trying for worker in self._workers):
            return None
        if not self._apart:
            self._is_reached = True
        elif self._looks < _LOOKS:
            for worker in self._workers:
                worker.unprepared = True
        else:
            raise _apart(self._apart)
        return None

    def _told_of(self, meeting: _Meeting, keys: Sequence[int]) -> dict[str, Any]:
        """Description of a meeting of the trainers of some partitions, in the order of their places."""
        told = {"name": meeting.name, "secret": meeting.secret, "size": len(keys)}
        if len({self._place.hosts.get(key) for key in keys}) == 1:
            return told
        return told | {"addresses": [self._worker_of(key).address for key in keys]}

    def _worker_of(self, partition_key: int) -> _Worker:
        return next(one for one in self._workers if partition_key in one.partition_keys)

    def _group(self, state: RunState, task: Participate, meeting: _Meeting) -> dict[str, Any]:
        """Description of the others for a trainer of a group."""
        size = state.tracks[task.own.mst_key].configuration.fit_params.batch_size
        shares = state.spec.strategy.shares(size, len(task.hops))
        steps = [
            math.ceil((stop - start) / share)
            for share, (start, stop) in zip(
                shares, (self._rows_of(state, hop) for hop in task.hops), strict=True
            )
        ]
        return {
            **self._told_of(meeting, [hop.partition_key for hop in task.hops]),
            "is_root": task.is_root,
            "steps": max(steps),
            "batch_size": shares[task.rank],
            "bits": state.spec.strategy.bits,
            "is_pipelined": state.spec.strategy.is_pipelined(task.own.epoch),
            **self._served(state, task, steps),
        }

    def _served(self, state: RunState, task: Participate, steps: Sequence[int]) -> dict[str, Any]:
        """Parameters of a round for its trainers, where one of them holds the weights."""
        spec, configuration = state.spec, state.tracks[task.own.mst_key].configuration
        if not spec.strategy.has_weight_server:
            return {}
        passes, rounds = configuration.fit_params.epochs, self._place.rounds
        told = rounds.told(spec, configuration, task.own)
        return {"served": {"steps": list(steps), "passes": passes, **told}}

    def _rows_of(self, state: RunState, hop: Hop) -> tuple[int, int]:
        """Rows of a pass over its partition that a hop of a round trains on."""
        rows = {one.partition_key: one.rows for one in self._packed.partitions}
        size = state.tracks[hop.mst_key].configuration.fit_params.batch_size
        number, most = state.spec.round_of(hop), max(rows.values())
        return rows_of_round(
            rows[hop.partition_key], most, size, number, state.spec.strategy.rounds
        )

    def _average_order(self, state: RunState, worker: _Worker, task: Average) -> AverageOrder:
        """The order of an average; the tables that it uses are the worker's."""
        store, spec = self._place.store, state.spec
        epoch, position = divmod(task.version, spec.hops_an_epoch)
        keys = sorted(spec.partitions[TRAINING])
        hops = [
            Hop(task.mst_key, epoch + 1, position + place, key) for place, key in enumerate(keys)
        ]
        parts, makes = [(task.mst_key, spec.left(hop)) for hop in hops], task.version + len(hops)
        worker.target, track = store.target(makes), state.tracks[task.mst_key]
        sources = store.use_of(parts)
        worker.tables = sources + store.use([worker.target])
        ranges = [self._rows_of(state, hop) for hop in hops]
        worker.average = AverageOrder(
            states=[table.name for table in sources],
            target=worker.target.name,
            mst_key=task.mst_key,
            versions=[version for _, version in parts],
            weights=[float(stop - start) for start, stop in ranges],
            makes=makes,
            partition_key=worker.partition_keys[0] if worker.partition_keys else keys[0],
            following=[] if makes == track.budget * spec.hops_an_epoch else keys,
        )
        return worker.average

    def _timed(self, order: HopOrder) -> HopOrder:
        """The same, told by the process that makes it and not by the session."""
        since = self._free_since.get(order.partition_key)
        waited = order.waited if since is None else time.monotonic() - since
        keys = [partition.partition_key for partition in self._packed.partitions]
        return replace(order, worker=keys.index(order.partition_key), waited=waited)

    def _fits(self, partition_key: int) -> bool:
        """True if a worker can hold a partition; the same rule as the worker's."""
        rows = next(p.rows for p in self._packed.partitions if p.partition_key == partition_key)
        return rows * self._packed.row_bytes <= self._place.cache_bytes

    def _scoring(
        self, state: RunState, worker: _Worker, scans: Sequence[Scan], *, together: bool
    ) -> Statement:
        orders = [self._scan_order(state, worker, scan) for scan in scans]
        packed = self._place.tables[scans[0].dataset]
        if together:
            return checked(packed, self._rotation.sweep(packed, orders))
        (order,) = orders
        return checked(packed, self._sql.scan(packed, order))

    def _scan_order(self, state: RunState, worker: _Worker, scan: Scan) -> ScanOrder:
        """The order of a scan; the tables that it reads are the worker's until it has ended."""
        place, store, group = self._place, self._place.store, scan.group
        tracks = [state.tracks[key] for key in group.mst_keys]
        found = [track.configuration for track in tracks if not track.ended]
        version = group.epoch * state.spec.hops_an_epoch
        store.give_back(worker.tables)
        worker.tables = store.use_of([(one.mst_key, version) for one in found])
        return ScanOrder(
            states=[table.name for table in worker.tables],
            partition_key=scan.partition_key,
            task=place.tasks.scan(scan.dataset, scan.partition_key),
            mst_keys=[one.mst_key for one in found],
            versions=[version] * len(found),
            tasks=[place.tasks.score(one) for one in found],
            reads=(scan.dataset, scan.partition_key) not in worker.kept,
            preparation=place.preparation,
            home=worker.home,
        )

    def _call(self, worker: _Worker, function: str, parameters: Sequence[Any] = ()) -> Statement:
        """Call a function wherever a worker trains."""
        return self._sql.call(self._packed, worker.partition_keys, function, parameters)

    def _call_once(self, worker: _Worker, function: str, task: str) -> Statement:
        """Have a function do a task where a worker trains, in one process."""
        parameters = [task]
        if worker.partition_keys:  # a statement that failed may have taken the process with it
            function = f"CASE WHEN {_PREPARE_PROCESS} IS NOT NULL THEN {function} END"
            parameters = [self._place.preparation, task]
        return self._sql.call(self._packed, worker.partition_keys[:1], function, parameters)

    # -- results ---------------------------------------------------------------------
    def _advanced(self, worker: _Worker) -> Result | None:
        """Result of a statement, None while it is under way."""
        try:
            if not worker.session.advance():
                return None
        except StatementFailed as error:
            self._undone(worker)
            self._release(worker)
            worker.kept = set()  # a statement that failed may have driven partitions out of memory
            worker.unprepared = worker.unprepared or self._is_without_trainer(worker, error)
            # Its process on the segment may be another one by now, and its trainer elsewhere.
            worker.unprepared = worker.unprepared or bool(self._place.hosts)
            return Failure(error.message, error.sqlstate, error.hint, error)
        result = self._result(worker, worker.session.rows())
        self._release(worker)
        return result

    @staticmethod
    def _is_without_trainer(worker: _Worker, error: StatementFailed) -> bool:
        """True if a worker has lost its trainer by what it did; on segments each statement makes one ready."""
        ended = error.sqlstate == OutOfMemory.sqlstate and not worker.partition_keys
        return ended or error.sqlstate == TrainerLost.sqlstate

    def _result(self, worker: _Worker, rows: list[tuple[Any, ...]]) -> Result | None:
        match worker.task:
            case None:
                return self._ready(worker, [json.loads(text) for (text,) in rows])
            case Train(hops):
                return self._trained(
                    worker, hops, self._sql.all_made([h.mst_key for h in hops], rows)
                )
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

    def _ready(self, worker: _Worker, told: list[Any]) -> Ready | None:
        """A worker is ready, or has looked whether it can reach the others."""
        if worker.is_trying:
            self._apart += [(place, reason) for reasons in told for place, reason in reasons]
            return None
        for manifest in told:
            worker.address = manifest.pop("address", None)
        return Ready(told)

    def _undone(self, worker: _Worker) -> None:
        """The statement of a worker has left nothing."""
        if worker.target is not None:
            for _ in range(len(worker.orders) + (worker.average is not None)):
                self._place.store.failed(worker.target)

    def _release(self, worker: _Worker) -> None:
        self._place.store.give_back(worker.tables)
        worker.tables, worker.target, worker.orders, worker.average = [], None, {}, None
        worker.task, worker.is_busy, worker.is_trying = None, False, False
        worker.free_since = time.monotonic()

    def _trained(
        self, worker: _Worker, hops: Sequence[Hop], made: Mapping[int, HopMade]
    ) -> Trained:
        """Hops that were made one after another, by mst_key in their order."""
        own = {mst_key: _own_seconds(one) for mst_key, one in made.items()}
        # What the statement took beside them is shared by all of them.
        left = time.monotonic() - worker.sent - sum(own.values())
        share = max(left, 0.0) / len(hops)
        found, sent = [], worker.sent
        for hop in sorted(hops, key=lambda hop: hop.mst_key):
            one = made.get(hop.mst_key) or _no_rows(hop)
            worker.kept = set(map(_partition, one.kept))
            if len(made) > 1 and one.figures is not None:  # when its row came, others had trained
                one = replace(one, figures=replace(one.figures, written=share))
            found.append(self._hop(worker, hop, one, sent, own[hop.mst_key] + share))
            sent += own[hop.mst_key] + share
        return Trained(tuple(found))

    def _stepped(
        self, worker: _Worker, hops: Sequence[Hop], rows: list[tuple[Any, ...]]
    ) -> Trained:
        """Hops that were made side by side, some of which may have failed by themselves."""
        ended, errors = time.monotonic(), {row[0]: row[1] for row in rows if row[1] is not None}
        made: dict[int, HopMade] = {}
        for hop in hops:
            own = [row[2:] for row in rows if row[0] == hop.mst_key] or _no_rows(hop)
            if hop.mst_key not in errors:
                made[hop.mst_key] = self._sql.made(own)
        # A hop ends when its own training does; the rest of the step is the same for all of them.
        longest = max(map(_own_seconds, made.values()), default=0.0)
        found, failed = [], []
        for hop in hops:
            one = made.get(hop.mst_key)
            waits = longest - _own_seconds(one)
            self._free_since[hop.partition_key] = ended - waits
            _keep(worker, hop.partition_key, one.kept if one else ())
            if one is not None:
                seconds = ended - worker.sent - waits
                found.append(self._hop(worker, hop, one, worker.sent, seconds))
            else:
                assert worker.target is not None
                self._place.store.failed(worker.target)
                told = json.loads(errors[hop.mst_key])
                failed.append((hop, Failure(told["message"], told["sqlstate"], told["hint"])))
        return Trained(tuple(found), tuple(failed))

    def _hop(
        self, worker: _Worker, hop: Hop, made: HopMade, sent: float, seconds: float
    ) -> HopResult:
        """Take note of the state that a hop left."""
        assert worker.target is not None
        order = worker.orders[hop.mst_key]
        self._place.store.wrote(worker.target, (hop.mst_key, order.makes), made.size)
        return HopResult(
            hop=hop,
            worker=order.worker,
            pid=worker.session.pid,
            waited=order.waited,
            sent=sent,
            seconds=seconds,
            rows=made.rows,
            figures=made.figures,
        )

    def _shared(self, worker: _Worker, task: Participate, rows: list[tuple[Any, ...]]) -> Trained:
        """Hops that were made together, from the worker that has led them; of others none."""
        if not task.is_root:
            worker.kept = set(map(_partition, rows[0][0]))
            return Trained(())
        assert worker.target is not None
        (order,) = worker.orders.values()
        meeting = self._meetings.pop(order.mst_key)
        members = [meeting.members[place] for place in range(len(task.hops))]
        made, of_hops = self._sql.led(rows, order, members, meeting.recorded)
        if made.course is not None:
            self._place.rounds.note(order.mst_key, *made.course)
        worker.kept = set(map(_partition, made.kept))
        self._place.store.wrote(worker.target, (order.mst_key, order.makes), made.size)
        seconds = time.monotonic() - worker.sent
        return Trained(
            tuple(
                HopResult(
                    hop=hop,
                    worker=members[place].worker,
                    pid=members[place].pid,
                    waited=members[place].waited,
                    sent=worker.sent,
                    seconds=seconds,
                    rows=of_hops[place].rows,
                    figures=of_hops[place].figures,
                )
                for place, hop in enumerate(task.hops)
            ),
            record=made.record,
        )

    def _averaged(self, worker: _Worker, size: int) -> Averaged:
        """Take note of the state that an average left."""
        assert worker.target is not None
        assert worker.average is not None
        key = worker.average.mst_key, worker.average.makes
        self._place.store.wrote(worker.target, key, size)
        return Averaged()

    def _sums(
        self, worker: _Worker, scan: Scan, texts: Mapping[int, str], together: bool
    ) -> tuple[Scan, dict[int, Any], dict[int, str]]:
        result = json.loads(texts[scan.partition_key])
        if together:
            _keep(worker, scan.partition_key, result["kept"])
        else:
            worker.kept = set(map(_partition, result["kept"]))
        partials = {int(key): value for key, value in result["partials"].items()}
        return scan, partials, {int(key): value for key, value in result["errors"].items()}

    # -- sessions ----------------------------------------------------------------------
    def _prepare(self, worker: _Worker) -> None:
        """Send what makes a session, or its processes on segments, a worker.

        While it works for the run it shares a lock: whoever goes on with the run waits for that, so
        that no hop of a driver that is gone can be committed later.
        """
        place = self._place
        prepare, parameters = self._preparation(worker)
        worker.task, worker.is_busy = None, True
        worker.session.send(
            f"{self._sql.worker_settings(place.states)}; "
            f"SELECT pg_catalog.pg_advisory_lock_shared(%s); {prepare}",
            (place.guard_key, *parameters),
        )

    def _preparation(self, worker: _Worker) -> Statement:
        place = self._place
        if worker.partition_keys:
            return self._call(worker, _PREPARE_PROCESS, [place.preparation])
        return (
            "SELECT cerebro._prepare_worker(%s, %s, %s, %s, %s)",
            [place.threads, place.use_gpus, place.cache_bytes, place.run_id, worker.number],
        )

    def _renew(self, worker: _Worker) -> None:
        """Have a worker get ready again, in another session.

        A cancel request of what it did before could hit the next statement of the old one.
        """
        place = self._place
        worker.session.close()
        (worker.session,) = place.pool.take(1)
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


def _apart(told: Sequence[tuple[int, str]]) -> PeersApart:
    """Error of ways that there are not: first trainers that were lost, then the place that most complain of."""
    count = Counter(place for place, _ in told)
    in_order = sorted(told, key=lambda one: (one[0] >= 0, -count[one[0]], one))
    ordered = list(dict.fromkeys(reason for _, reason in in_order))
    more = f"; and {len(ordered) - _MOST_TOLD} more" if len(ordered) > _MOST_TOLD else ""
    return PeersApart(f"trainers of several hosts: {'; '.join(ordered[:_MOST_TOLD])}{more}")


def _works(session: Session) -> bool:
    try:
        return not session.advance()
    except CerebroError:
        return False


def _own_seconds(made: HopMade | None) -> float:
    """Of the own work of a hop; none where it failed."""
    return made.figures.read + made.figures.trained if made and made.figures else 0.0


def _no_rows(hop: Hop) -> Any:
    """Tell that somebody has emptied a partition."""
    raise InvalidData(
        f"source_table: got no rows of partition {hop.partition_key}; allowed: to go on with the "
        "same rows only",
        hint="start a new run",
    )


def _partition(name: str) -> tuple[str, int]:
    """Data set and key of a partition, as a worker names it."""
    dataset, _, key = name.rpartition("/")
    return dataset, int(key)


def _keep(worker: _Worker, partition_key: int, kept: Sequence[str]) -> None:
    """Take note of the partitions that the process of one partition has in memory."""
    others = {pair for pair in worker.kept if pair[1] != partition_key}
    worker.kept = others | set(map(_partition, kept))
