"""One run: workers take hops and scans as they become free, without barriers."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, NoReturn

from cerebro_db.database.catalog import MetricRow
from cerebro_db.database.dialects.postgresql_training import (
    HopMade,
    HopOrder,
    ScanOrder,
    Statement,
)
from cerebro_db.database.sessions import POLL_SECONDS, StatementFailed, wait_any
from cerebro_db.driver.events import WRITE, Events
from cerebro_db.driver.fit_setup import RunSetup, decoded_bytes
from cerebro_db.driver.handing import Handing
from cerebro_db.driver.hop_records import HopRecords
from cerebro_db.driver.jobs import Combination, Hops, Preparation, Trial, Writing
from cerebro_db.driver.orders import Orders
from cerebro_db.driver.planned import Plan
from cerebro_db.driver.progress import EpochReport
from cerebro_db.driver.retention import Retention
from cerebro_db.driver.scoreboard import TRAINING, VALIDATION, Scan, ScoreBoard
from cerebro_db.driver.state_store import StateTable
from cerebro_db.driver.stored import Progress, diverged
from cerebro_db.driver.tasks import TaskWriter
from cerebro_db.driver.workers import (
    RunContext,
    Worker,
    call_once,
    is_calm,
    manifests_of,
    renew,
    start_preparing,
)
from cerebro_db.errors import CerebroError, InvalidData, RunFailed, WrongRunStatus, concerns_all
from cerebro_db.planning.dispatch import Dispatcher
from cerebro_db.planning.orders import Visit

# Who looks at the scores of a run sees them that much later, or a hop of so many seconds at most;
# short epochs share their scans.
_PATIENCE, _LONGEST = 0.5, 5.0
_LONGEST_ERROR = 2000

Rows = list[tuple[Any, ...]]


def no_rows(visit: Visit) -> NoReturn:
    """Tell that somebody has emptied a partition."""
    raise InvalidData(
        f"source_table: got no rows of partition {visit.partition_key}; allowed: to go on with the "
        "same rows only",
        hint="start a new run",
    )


def own_seconds(made: HopMade | None) -> float:
    """Of the own work of a hop; none where it failed."""
    return made.told.read + made.told.trained if made and made.told else 0.0


class Run:
    """The loop of a run that is registered already, from its beginning or from where it is.

    Args:
        setup: what to train.
        progress: how far that has come.
        context: what to work with.
        workers: sessions of the run.
    """

    def __init__(
        self, setup: RunSetup, progress: Progress, context: RunContext, workers: list[Worker]
    ) -> None:
        self._setup, self._context, self._workers = setup, context, workers
        self._run_id, self._catalog = context.run_id, context.catalog
        self._sql, self._store = context.dialect.training, context.store
        self._ended = dict(progress.ended)
        self._verdicts = progress.verdicts
        over = self._verdicts.stopped() | progress.ended.keys()
        self._alive = {c.mst_key: c for c in setup.configurations if c.mst_key not in over}
        self._tasks = TaskWriter(setup, context.run_id)
        self._orders = Orders(setup, context, self._tasks)
        self._costs = {c.mst_key: c.hop_seconds for c in setup.configurations}
        self._tables = {TRAINING: setup.packed}
        if setup.validation is not None:
            self._tables[VALIDATION] = setup.validation
        keys = {name: [p.partition_key for p in t.partitions] for name, t in self._tables.items()}
        self._partitions = keys[TRAINING]
        self._dispatcher = self._new_dispatcher()
        self._handing = Handing(
            self._dispatcher, self._serves, self._sql.most_hops, self._visit_ended
        )
        held = sum(decoded_bytes(table) for table in self._tables.values())
        epochs = setup.request.metric_epochs()
        waits, scored = held > context.cache_bytes, progress.scored
        self._board = ScoreBoard(
            keys, epochs, waits=waits, scored=scored, patience=_PATIENCE, longest=_LONGEST
        )
        self._retention = Retention(
            context.states,
            epochs,
            context.store.kept(),
            progress.done.items(),
            progress.scored,
            self._verdicts.restored(),
        )
        self._plan = Plan(setup, context, progress.planned)
        self._combinations: list[Combination] = []
        self._events = Events(self._catalog, self._run_id, setup.configurations)
        self._records = HopRecords(self._catalog, self._run_id)
        self._store.before_drop = self._records.flush
        self._report = EpochReport(setup, context.notify)
        self._began = time.monotonic()
        self._seconds_before = progress.seconds
        self._ready = False
        self._ticked = 0.0
        self._catch_up(progress)

    def _new_dispatcher(self) -> Dispatcher:
        return Dispatcher(max(1, len(self._workers)), self._costs, self._serves)

    def run(self) -> dict[int, tuple[str, str]]:
        """Train until nothing is left; returns status and error of what failed or was cancelled."""
        try:
            self._train()
        except BaseException:
            with suppress(CerebroError):
                self._records.flush()
            raise
        self._records.flush()
        return self._ended

    def _train(self) -> None:
        for worker in self._workers:
            worker.partition_keys = self._own_partitions(worker.number)
            start_preparing(worker, self._context)
            worker.job = Preparation()
        self._plan_until(1)  # while they import TensorFlow
        while busy := self._busy():
            self._wait(busy)
            for worker in busy:
                self._advance(worker)
        if self._alive and not self.complete:
            raise RunFailed("the run came to a halt with hops left to do")

    def _busy(self) -> list[Worker]:
        """The workers at work, those among them that have just been given some."""
        while True:
            for worker in self._workers:
                if worker.job is None:
                    self._assign(worker)
            busy = [worker for worker in self._workers if worker.job is not None]
            # Scans of configurations that have ended are done at once, and leave something to do.
            if busy or not self._combinations:
                return busy

    @property
    def complete(self) -> bool:
        """Whether nothing is left to train or to score."""
        everything_planned = self._plan.complete or not self._alive
        trained = everything_planned and self._dispatcher.done and self._board.done
        return trained and self._events.done

    def _catch_up(self, progress: Progress) -> None:
        """Make known what earlier drivers have planned and done, and what they left over."""
        self._discard()
        for mst_key in self._verdicts.stopped() | progress.ended.keys():
            self._dispatcher.drop(mst_key)
        done = [
            v for v in progress.plan if self._orders.version(v) < progress.done.get(v.mst_key, 0)
        ]
        self._dispatcher.add_finished(range(1, progress.planned + 1))
        self._dispatcher.add_visits(set(progress.plan).difference(done))
        self._orders.know(progress.plan)
        for mst_key, version in progress.done.items():
            for epoch in range(1, version // len(self._partitions) + 1):
                self._report.finished(epoch)
                if mst_key in self._alive and (mst_key, epoch) not in progress.scored:
                    self._board.finished(mst_key, epoch)
        self._report.known(self._epoch_complete)

    # -- waiting ---------------------------------------------------------------
    def _wait(self, busy: list[Worker]) -> None:
        wait_any([worker.session for worker in busy], POLL_SECONDS)
        now = time.monotonic()
        if now - self._ticked >= POLL_SECONDS:
            self._context.tick()
            self._ticked = now
        for request_id, mst_key, who in self._context.requests.look():
            self._cancel(mst_key, who)
            self._context.requests.done(request_id)
        self._records.flush_if_due(now)

    def _advance(self, worker: Worker) -> None:
        """Take what a worker finished, and give it something new at once."""
        job = worker.job
        try:
            if not worker.session.advance():
                return
        except StatementFailed as error:
            self._undone(worker)
            self._free(worker)
            worker.kept = set()  # a statement that failed may have driven partitions out of memory
            self._failed(job, error)
            return
        rows, target = worker.session.rows(), worker.target
        self._free(worker)
        self._done(worker, job, rows, target)

    def _done(self, worker: Worker, job: Any, rows: Rows, target: StateTable | None) -> None:
        """Take the rows of a statement."""
        if isinstance(job, Hops):
            assert target is not None
            self._hopped(worker, job, rows, target)
        elif isinstance(job, Scan):
            result = json.loads(rows[0][0])
            worker.kept = set(result["kept"])
            self._scanned(job, result)
        elif isinstance(job, Combination):
            self._combined(job, json.loads(rows[0][0]))
        elif isinstance(job, Trial):
            self._tried(json.loads(rows[0][0]))
        elif isinstance(job, Preparation):
            self._prepared(worker)

    def _undone(self, worker: Worker) -> None:
        """The statement of a worker has left nothing."""
        if worker.target is not None and isinstance(worker.job, Hops):
            for _ in worker.job.visits:
                self._store.failed(worker.target)

    def _free(self, worker: Worker) -> None:
        self._store.give_back(worker.tables)
        worker.tables, worker.target = [], None
        worker.job = None
        worker.free_since = time.monotonic()

    # -- giving work -------------------------------------------------------------
    def _assign(self, worker: Worker) -> None:
        if not is_calm(worker):
            renew(worker, self._context)
            worker.job = Preparation()
        elif self._combinations:
            self._send_combination(worker, self._combinations.pop(0))
        elif (events := self._events.next()) is not None:
            worker.job = Writing()
            worker.session.send(WRITE, (events,))
        else:
            self._assign_scan_or_visit(worker)

    def _assign_scan_or_visit(self, worker: Worker) -> None:
        held = self._held()
        scan = None
        # What decides when the run ends comes before what somebody who is free can do meanwhile.
        if not self._dispatcher.is_pressing(worker.number, held):
            scan = self._next_scan(worker, held, idle=False)
        if scan is None:
            visits = self._next_visits(worker, held)
            if visits:
                self._send_visits(worker, visits)
                return
            training = any(isinstance(other.job, Hops) for other in self._workers)
            scan = self._next_scan(worker, held if training else None, idle=True)
        if scan is not None:
            self._send_scan(worker, scan)

    def _next_scan(
        self, worker: Worker, awaited: Collection[int] | None, *, idle: bool
    ) -> Scan | None:
        def serves(key: int) -> bool:
            return self._serves(worker.number, key)

        while True:
            scan = self._board.next(self._alive, worker.kept, serves, awaited, idle)
            if scan is None or self._is_wanted(scan):
                return scan

    def _is_wanted(self, scan: Scan) -> bool:
        """Whether there is anything to score; if not, the scan is done."""
        if self._alive.keys().isdisjoint(scan.group.mst_keys):
            self._scanned(scan, {"partials": {}, "errors": {}})
            return False
        return True

    def _held(self) -> list[int]:
        """Configurations that must be scored before they go on."""
        return [mst_key for mst_key in self._alive if self._waits(mst_key)]

    def _next_visits(self, worker: Worker, held: Collection[int]) -> tuple[Visit, ...]:
        kept = worker.kept_partitions(TRAINING)
        return self._handing.next(worker.number, kept, held, self._alive)

    def _send_visits(self, worker: Worker, visits: Sequence[Visit]) -> None:
        versions = [self._orders.version(visit) for visit in visits]
        pairs = zip(visits, versions, strict=True)
        sources = [self._store.of((visit.mst_key, version)) for visit, version in pairs]
        # One statement writes one table: where one of the states must last, all of them do.
        target = self._store.target(*(version + 1 for version in versions))
        worker.target, worker.job = target, Hops(tuple(visits))
        worker.tables = self._store.use([*sources, target])
        orders = [
            self._orders.hop(
                worker,
                self._alive[visit.mst_key],
                visit,
                source,
                target,
                self._verdicts.of(visit.mst_key).learning_rate,
            )
            for visit, source in zip(visits, sources, strict=True)
        ]
        orders = self._timed(orders)
        worker.orders = {order.mst_key: order for order in orders}
        worker.sent = time.monotonic()
        worker.session.send(*self._statement(orders))
        self._plan_until(max(visit.epoch for visit in visits) + 1)

    def _timed(self, orders: Sequence[HopOrder]) -> list[HopOrder]:
        """The same in the order in which they are made; nobody waits between them."""
        first, *others = sorted(orders, key=lambda order: order.mst_key)
        return [first, *(replace(order, waited=0.0) for order in others)]

    def _statement(self, orders: Sequence[HopOrder]) -> Statement:
        """What makes these hops."""
        return self._sql.hops(self._setup.packed, orders)

    def _send_scan(self, worker: Worker, scan: Scan) -> None:
        order = self._scan_order(worker, scan)
        worker.job = scan
        worker.session.send(*self._sql.scan(self._tables[scan.dataset], order))

    def _scan_order(self, worker: Worker, scan: Scan) -> ScanOrder:
        """The order of a scan; the tables that it reads are the worker's until it has ended."""
        alive = [self._alive[key] for key in scan.group.mst_keys if key in self._alive]
        version = scan.group.epoch * len(self._partitions)
        self._store.give_back(worker.tables)
        worker.tables = self._store.use_of([(one.mst_key, version) for one in alive])
        return self._orders.scan(worker, scan, alive, version)

    def _send_combination(self, worker: Worker, job: Combination) -> None:
        task = self._tasks.combination(job.group, job.dataset, self._alive)
        worker.job = job
        function = "cerebro._combine_measures(%s)"
        worker.session.send(*call_once(worker, self._context, function, task))

    # -- taking results ------------------------------------------------------------
    def _prepared(self, worker: Worker) -> None:
        worker.is_ready = True
        manifests = manifests_of(worker)
        for manifest in manifests:
            if self._context.functions:
                manifest["functions"] = self._context.functions
            self._check_versions(manifest)
        if not self._ready:
            self._ready = True
            self._began = time.monotonic()
            self._report.ready()
            self._catalog.started(self._run_id, manifests[0])
            worker.job = Trial()
            task = self._tasks.trial(self._alive.values())
            function = "cerebro._try_scores(%s)"
            worker.session.send(*call_once(worker, self._context, function, task))

    def _check_versions(self, manifest: dict[str, Any]) -> None:
        """Refuse to go on where other software, or another processor, would give other results."""
        before = self._context.manifest
        for name, value in manifest.items():
            if name in before and before[name] != value:
                raise WrongRunStatus(
                    f"run {self._run_id} began with {name} {before[name]}; "
                    f"this server has {value}, so that results would not be the same",
                    hint="any_version := true goes on all the same",
                )

    def _tried(self, errors: dict[str, str]) -> None:
        for mst_key, error in errors.items():
            self._drop(int(mst_key), error)

    def _hopped(self, worker: Worker, job: Hops, rows: Rows, target: StateTable) -> None:
        """Take what hops did that were made one after another."""
        found = self._sql.all_made([visit.mst_key for visit in job.visits], rows)
        seconds = {mst_key: own_seconds(made) for mst_key, made in found.items()}
        # What the statement took beside them is shared by all of them.
        left = time.monotonic() - worker.sent - sum(seconds.values())
        share = max(left, 0.0) / len(job.visits)
        used = self._store.use([target])
        for visit in sorted(job.visits, key=lambda visit: visit.mst_key):
            made = found.get(visit.mst_key) or no_rows(visit)
            worker.kept = set(made.kept)
            if len(found) > 1 and made.told is not None:  # when its row came, others had trained
                made = replace(made, told=replace(made.told, written=share))
            self._record(worker, visit, made, seconds[visit.mst_key] + share)
            self._visited(visit, made, seconds[visit.mst_key] + share, target)
            worker.sent += seconds[visit.mst_key] + share
        self._store.give_back(used)

    def _record(self, worker: Worker, visit: Visit, made: HopMade, seconds: float) -> None:
        """Have the catalog know of a hop, where its statement has not told it."""
        if made.told is not None:
            order = worker.orders[visit.mst_key]
            pid = worker.session.pid
            self._records.add(order, pid, worker.sent, seconds, made.rows, made.told)

    def _visited(self, visit: Visit, made: HopMade, seconds: float, target: StateTable) -> None:
        self._handing.took(visit.mst_key, seconds)
        self._report.trained(made.rows)
        self._dispatcher.finished(visit)
        version = self._orders.version(visit) + 1
        self._store.wrote(target, (visit.mst_key, version), made.size)
        self._retention.hop_done(visit.mst_key, version)
        if visit.mst_key not in self._alive:
            self._discard_all(visit.mst_key)
        self._discard()
        if visit.position == len(self._partitions) - 1 and visit.mst_key in self._alive:
            self._board.finished(visit.mst_key, visit.epoch, self._handing.longest())
            self._report.finished(visit.epoch)
        self._report_epochs()

    def _scanned(self, scan: Scan, result: dict[str, Any]) -> None:
        partials = {int(key): value for key, value in result["partials"].items()}
        errors = {int(key): value for key, value in result["errors"].items()}
        if self._board.scanned(scan, partials, errors):
            for mst_key, error in scan.group.errors.items():
                self._drop(mst_key, error)
            self._combinations += [Combination(scan.group, name) for name in self._tables]

    def _combined(self, job: Combination, results: dict[str, Any]) -> None:
        elapsed = self._seconds_before + time.monotonic() - self._began
        epoch, found = job.group.epoch, {int(key): value for key, value in results.items()}
        for mst_key, result in found.items():
            if "error" in result:
                self._drop(mst_key, result["error"])
        rows = [
            MetricRow(key, epoch, job.dataset, v["loss"], v["names"], v["metrics"], elapsed)
            for key, v in found.items()
            if "error" not in v
        ]
        self._records.flush()  # no crash may leave results without the hops that they are of
        self._catalog.add_metrics(self._run_id, rows)
        self._report.scored(rows)
        for row in rows:
            if not math.isfinite(row.loss):
                self._drop(row.mst_key, diverged(job.dataset, epoch, row.loss))
        job.group.combined.add(job.dataset)
        if job.group.combined == set(self._tables):
            for mst_key in job.group.mst_keys:
                self._retention.scored(mst_key, epoch * len(self._partitions))
            self._events.measured(job.group.mst_keys)
            self._report_epochs()
            self._decide(job.group.mst_keys)
            self._report_epochs()
            self._discard()

    def _waits(self, mst_key: int) -> bool:
        """Whether a configuration must be scored before it goes on."""
        undecided = self._verdicts.watches(mst_key) and self._retention.is_due(mst_key)
        return undecided or self._retention.full(mst_key)

    def _decide(self, mst_keys: Iterable[int]) -> None:
        """Do what callbacks make of an epoch."""
        alive = [mst_key for mst_key in mst_keys if mst_key in self._alive]
        for mst_key, (before, after) in self._verdicts.update(alive).items():
            if after.restored_epoch is not None:
                self._retention.keep(mst_key, after.restored_epoch)
            self._report.decided(mst_key, before, after)
            if after.stopped_epoch is not None:
                del self._alive[mst_key]
                self._dispatcher.drop(mst_key)

    def _discard(self) -> None:
        """Give up states that nothing needs any more."""
        self._store.forget(self._retention.useless())
        self._store.sweep()

    def _discard_all(self, mst_key: int) -> None:
        """Give up the states of a configuration that has ended."""
        self._store.forget_all(mst_key)
        self._retention.drop(mst_key)

    # -- failures --------------------------------------------------------------------
    def _failed(self, job: Any, error: StatementFailed) -> None:
        """One configuration fails by itself; anything else ends the run."""
        if isinstance(job, Writing):  # what is missing is written when the run is resumed
            self._context.notify(f"TensorBoard: {error.message}")
            return
        if not isinstance(job, Hops):
            raise error
        going_on = any(visit.mst_key in self._alive for visit in job.visits)
        if going_on and concerns_all(error.sqlstate):
            raise error
        if len(job.visits) > 1:
            self._handing.one_by_one(job.visits)
        else:
            self._visit_failed(job.visits[0], error)

    def _visit_failed(self, visit: Visit, error: StatementFailed) -> None:
        hint = f"; {error.hint}" if error.hint else ""
        where = f"epoch {visit.epoch}, hop {visit.position + 1}"
        self._drop(visit.mst_key, f"{error.message} ({where}){hint}")
        self._visit_ended(visit)

    def _visit_ended(self, visit: Visit) -> None:
        """A visit of a configuration that has ended is no longer under way."""
        self._dispatcher.finished(visit)
        self._report_epochs()

    def _cancel(self, mst_key: int, who: str) -> None:
        """Someone cancelled one configuration."""
        self._drop(mst_key, f"cancelled by {who}", "cancelled")
        for worker in self._workers:
            job = worker.job
            if isinstance(job, Hops) and self._is_only(job, mst_key):
                worker.session.cancel()
                worker.cancelled = True

    def _is_only(self, job: Hops, mst_key: int) -> bool:
        """Whether a statement is a configuration's alone, and may be cancelled with it."""
        return [visit.mst_key for visit in job.visits] == [mst_key]

    def _drop(self, mst_key: int, error: str, status: str = "failed") -> None:
        if self._alive.pop(mst_key, None) is not None:
            error = " ".join(error.split())[:_LONGEST_ERROR]
            self._ended[mst_key] = (status, error)
            self._dispatcher.drop(mst_key)
            self._board.drop(mst_key)
            self._catalog.configuration_ended(self._run_id, mst_key, status, error)
            self._discard_all(mst_key)
            self._report.ended(mst_key, status, error)
            self._report_epochs()

    # -- plan and progress -----------------------------------------------------------
    def _plan_until(self, epoch: int) -> None:
        """Plan and store epochs before any of their hops is handed out."""
        visits = self._plan.until(epoch)
        self._dispatcher.add_visits(visits)
        self._orders.know(visits)

    def _serves(self, worker: int, partition_key: int) -> bool:
        """Whether a worker may have a partition: any one, or those on its segments."""
        count = len(self._workers)
        return not self._sql.binds_workers or count < 1 or partition_key % count == worker

    def _own_partitions(self, worker: int) -> list[int]:
        """The partitions that only this worker may have."""
        bound = self._sql.binds_workers
        return [key for key in self._partitions if bound and self._serves(worker, key)]

    def _report_epochs(self) -> None:
        seconds = self._seconds_before + time.monotonic() - self._began
        self._report.epochs(self._epoch_complete, seconds)

    def _epoch_complete(self, epoch: int) -> bool:
        """Whether every configuration has done an epoch, and been scored where that is wanted."""
        version = epoch * len(self._partitions)
        scored = all(self._retention.is_scored(key, version) for key in self._alive)
        return self._dispatcher.epoch_done(epoch) and (scored or not self._board.wants(epoch))
