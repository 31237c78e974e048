"""One run: workers take hops and scans as they become free, without barriers."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from cerebro_db.database.catalog import Catalog, MetricRow
from cerebro_db.database.dialects import PostgreSQL
from cerebro_db.database.dialects.postgresql_training import HopOrder, ScanOrder
from cerebro_db.database.packed import PackedTable
from cerebro_db.database.sessions import POLL_SECONDS, StatementFailed, Tick, wait_any
from cerebro_db.driver.fit_setup import RunSetup
from cerebro_db.driver.progress import EpochReport
from cerebro_db.driver.retention import Retention
from cerebro_db.driver.scoreboard import TRAINING, VALIDATION, Group, Scan, ScoreBoard
from cerebro_db.driver.tasks import TaskWriter
from cerebro_db.driver.workers import Worker, manifest_of, start_preparing
from cerebro_db.errors import RunFailed
from cerebro_db.planning.dispatch import Dispatcher
from cerebro_db.planning.orders import Visit, plan_epoch

Notify = Callable[[str], None]

# Classes of SQLSTATE that concern the server, not one configuration.
_FATAL_CLASSES = ("08", "42", "53", "57", "58")
_PLANNED_AHEAD = 20_000


@dataclass(frozen=True)
class _Preparation:
    """A worker imports TensorFlow."""


@dataclass(frozen=True)
class _Trial:
    """A worker finds out which configurations cannot be scored."""


@dataclass(frozen=True)
class _Combination:
    """A worker adds up the sums of a group."""

    group: Group
    dataset: str


class Run:
    """The loop of a run that is registered already.

    Args:
        setup: what to train.
        run_id: of the catalog.
        catalog: for plan and metrics; its session is not a worker's.
        dialect: of the server.
        workers: sessions of the run.
        cache_bytes: of decoded partitions that each worker may keep.
        tick: called while waiting; raises to cancel.
        notify: gets a line an epoch.
    """

    def __init__(
        self,
        setup: RunSetup,
        run_id: int,
        catalog: Catalog,
        dialect: PostgreSQL,
        workers: list[Worker],
        cache_bytes: int,
        tick: Tick,
        notify: Notify,
    ) -> None:
        self._setup, self._run_id, self._catalog = setup, run_id, catalog
        self._sql, self._workers, self._tick = dialect.training, workers, tick
        self._cache_bytes = cache_bytes
        self._alive = {c.mst_key: c for c in setup.configurations}
        self._errors: dict[int, str] = {}
        self._tasks = TaskWriter(setup, run_id)
        costs = {c.mst_key: c.hop_seconds for c in setup.configurations}
        self._costs = costs
        self._dispatcher = Dispatcher(len(workers), costs)
        self._tables = {TRAINING: setup.packed}
        if setup.validation is not None:
            self._tables[VALIDATION] = setup.validation
        keys = {name: [p.partition_key for p in t.partitions] for name, t in self._tables.items()}
        self._partitions = keys[TRAINING]
        held = sum(decoded_bytes(table) for table in self._tables.values())
        epochs = setup.request.metric_epochs()
        self._board = ScoreBoard(keys, epochs, waits=held > cache_bytes)
        self._iterations = setup.request.num_iterations or 1
        self._planned = 0
        self._next_partition: dict[tuple[int, int], int] = {}
        self._combinations: list[_Combination] = []
        self._retention = Retention()
        self._reported = 0
        self._report = EpochReport(setup, notify)
        self._started: float | None = None
        self._ticked = 0.0

    def run(self) -> dict[int, str]:
        """Train until nothing is left; returns the errors of configurations that failed."""
        self._plan_until(1)
        for worker in self._workers:
            start_preparing(worker, self._cache_bytes, self._run_id)
            worker.job = _Preparation()
        while True:
            for worker in self._workers:
                if worker.job is None:
                    self._assign(worker)
            busy = [worker for worker in self._workers if worker.job is not None]
            if not busy:
                break
            self._wait(busy)
            for worker in busy:
                self._advance(worker)
        if self._alive and not (self._dispatcher.done and self._board.done):
            raise RunFailed("the run came to a halt with hops left to do")
        return self._errors

    # -- waiting ---------------------------------------------------------------
    def _wait(self, busy: list[Worker]) -> None:
        wait_any([worker.session for worker in busy], POLL_SECONDS)
        now = time.monotonic()
        if now - self._ticked >= POLL_SECONDS:
            self._tick()
            self._ticked = now

    def _advance(self, worker: Worker) -> None:
        """Take what a worker finished, and give it something new at once."""
        job = worker.job
        try:
            if not worker.session.advance():
                return
        except StatementFailed as error:
            self._free(worker)
            worker.kept = set()  # a statement that failed may have driven partitions out of memory
            self._failed(job, error)
            return
        self._free(worker)
        rows = worker.session.rows()
        if isinstance(job, Visit):
            self._visited(worker, job, rows[0])
        elif isinstance(job, Scan):
            self._scanned(worker, job, json.loads(rows[0][0]))
        elif isinstance(job, _Combination):
            self._combined(job, json.loads(rows[0][0]))
        elif isinstance(job, _Trial):
            self._tried(json.loads(rows[0][0]))
        else:
            self._prepared(worker)

    @staticmethod
    def _free(worker: Worker) -> None:
        worker.job = None
        worker.free_since = time.monotonic()

    # -- giving work -------------------------------------------------------------
    def _assign(self, worker: Worker) -> None:
        if self._combinations:
            self._send_combination(worker, self._combinations.pop(0))
            return
        scan = self._board.next(self._alive, worker.kept)
        if scan is not None:
            self._send_scan(worker, scan)
            return
        visit = self._dispatcher.next_visit(worker.number, worker.kept_partitions(TRAINING))
        if visit is not None:
            self._send_visit(worker, visit)
            self._plan_until(visit.epoch + 1)

    def _send_visit(self, worker: Worker, visit: Visit) -> None:
        configuration = self._alive[visit.mst_key]
        version = self._version(visit)
        has_weights = version == 0 and configuration.architecture.has_weights
        order = HopOrder(
            run_id=self._run_id,
            mst_key=visit.mst_key,
            epoch=visit.epoch,
            position=visit.position,
            partition_key=visit.partition_key,
            version=version,
            next_partition_key=self._next_partition.get((visit.mst_key, version + 1)),
            worker=worker.number,
            waited=worker.waited(),
            task=self._tasks.visit(configuration, visit, version == 0),
            salt=self._tasks.salt(visit) if configuration.fit_params.shuffle else None,
            passes=1 if self._fits(visit.partition_key) else configuration.fit_params.epochs,
            reads=f"{TRAINING}/{visit.partition_key}" not in worker.kept,
            weights_from=(
                (self._setup.architectures.name, configuration.architecture.model_id)
                if has_weights
                else None
            ),
            keeps_previous=visit.position == 0 and self._keeps(visit),
        )
        worker.job = visit
        worker.session.send(*self._sql.hop(self._setup.packed, order))

    def _send_scan(self, worker: Worker, scan: Scan) -> None:
        alive = [self._alive[key] for key in scan.group.mst_keys if key in self._alive]
        order = ScanOrder(
            run_id=self._run_id,
            partition_key=scan.partition_key,
            task=self._tasks.scan(scan.dataset, scan.partition_key),
            mst_keys=[configuration.mst_key for configuration in alive],
            versions=[scan.group.epoch * len(self._partitions)] * len(alive),
            tasks=[self._tasks.score(configuration) for configuration in alive],
            reads=scan.name not in worker.kept,
        )
        worker.job = scan
        worker.session.send(*self._sql.scan(self._tables[scan.dataset], order))

    def _send_combination(self, worker: Worker, job: _Combination) -> None:
        task = self._tasks.combination(job.group, job.dataset, self._alive)
        worker.job = job
        worker.session.send("SELECT cerebro._combine_measures(%s)", (task,))

    # -- taking results ------------------------------------------------------------
    def _prepared(self, worker: Worker) -> None:
        if self._started is None:
            self._started = time.monotonic()
            self._catalog.started(self._run_id, manifest_of(worker))
            worker.job = _Trial()
            task = self._tasks.trial(self._alive.values())
            worker.session.send("SELECT cerebro._try_scores(%s)", (task,))

    def _tried(self, errors: dict[str, str]) -> None:
        for mst_key, error in errors.items():
            self._drop(int(mst_key), f"its loss or metrics cannot be computed: {error}")

    def _visited(self, worker: Worker, visit: Visit, row: tuple[int, float, list[str]]) -> None:
        rows, _, kept = row
        worker.kept = set(kept)
        self._report.trained(rows)
        self._dispatcher.finished(visit)
        self._retention.done(visit.mst_key, self._version(visit) + 1)
        self._discard()
        if visit.position == len(self._partitions) - 1 and visit.mst_key in self._alive:
            self._board.finished(visit.mst_key, visit.epoch)
            self._report_epochs()

    def _scanned(self, worker: Worker, scan: Scan, result: dict[str, Any]) -> None:
        worker.kept = set(result["kept"])
        partials = {int(key): value for key, value in result["partials"].items()}
        errors = {int(key): value for key, value in result["errors"].items()}
        if self._board.scanned(scan, partials, errors):
            for mst_key, error in scan.group.errors.items():
                self._drop(mst_key, error)
            self._combinations += [_Combination(scan.group, name) for name in self._tables]

    def _combined(self, job: _Combination, results: dict[str, Any]) -> None:
        elapsed = time.monotonic() - (self._started or 0.0)
        epoch, found = job.group.epoch, {int(key): value for key, value in results.items()}
        rows = [
            MetricRow(key, epoch, job.dataset, v["loss"], v["names"], v["metrics"], elapsed)
            for key, v in found.items()
        ]
        self._catalog.add_metrics(self._run_id, rows)
        self._report.scored(rows)
        for row in rows:
            if not math.isfinite(row.loss):
                self._drop(row.mst_key, f"the {job.dataset} loss of epoch {epoch} is {row.loss}")
        if job.dataset == list(self._tables)[-1]:
            for mst_key in job.group.mst_keys:
                self._retention.scored(mst_key, epoch * len(self._partitions))
            self._discard()
            self._report_epochs()

    def _keeps(self, visit: Visit) -> bool:
        """Whether the state before a visit is still to be scored."""
        if not self._board.wants(visit.epoch - 1):
            return False
        return self._retention.keep(visit.mst_key, self._version(visit))

    def _discard(self) -> None:
        """Drop states that were kept only to be scored."""
        useless = self._retention.useless()
        if useless:
            keys, versions = [key for key, _ in useless], [version for _, version in useless]
            self._catalog.execute(*self._sql.discard(self._run_id, keys, versions))

    # -- failures --------------------------------------------------------------------
    def _failed(self, job: Any, error: StatementFailed) -> None:
        """One configuration fails by itself; anything else ends the run."""
        if not isinstance(job, Visit) or error.sqlstate[:2] in _FATAL_CLASSES:
            raise error
        self._dispatcher.finished(job)
        hint = f" ({error.hint})" if error.hint else ""
        self._drop(job.mst_key, f"epoch {job.epoch}, hop {job.position + 1}: {error.message}{hint}")

    def _drop(self, mst_key: int, error: str) -> None:
        if self._alive.pop(mst_key, None) is not None:
            self._errors[mst_key] = error
            self._dispatcher.drop(mst_key)
            self._board.drop(mst_key)
            self._catalog.configuration_ended(self._run_id, mst_key, "failed", error)
            self._report.failed(mst_key, error)
            self._report_epochs()

    # -- plan and progress -----------------------------------------------------------
    def _plan_until(self, epoch: int) -> None:
        """Plan and store epochs before any of their hops is handed out."""
        if epoch <= self._planned or self._planned == self._iterations:
            return
        visits_an_epoch = len(self._costs) * len(self._partitions)
        ahead = max(epoch, self._planned + _PLANNED_AHEAD // visits_an_epoch)
        visits: list[Visit] = []
        seed = self._setup.request.seed or 0
        for number in range(self._planned + 1, min(ahead, self._iterations) + 1):
            visits += plan_epoch(self._costs, self._partitions, seed, number)
        self._catalog.add_plan(self._run_id, visits)
        self._dispatcher.add_visits(visits)
        for visit in visits:
            self._next_partition[visit.mst_key, self._version(visit)] = visit.partition_key
        self._planned = min(ahead, self._iterations)

    def _version(self, visit: Visit) -> int:
        """Hops that a configuration has done before a visit."""
        return (visit.epoch - 1) * len(self._partitions) + visit.position

    def _fits(self, partition_key: int) -> bool:
        """Whether a worker can hold a partition; the same rule as the worker's."""
        packed = self._setup.packed
        rows = next(p.rows for p in packed.partitions if p.partition_key == partition_key)
        return rows * row_bytes(packed) <= self._cache_bytes

    def _report_epochs(self) -> None:
        """Tell of every epoch that is complete and was not told of yet."""
        while self._reported < self._iterations:
            epoch = self._reported + 1
            version = epoch * len(self._partitions)
            scored = all(self._retention.is_scored(key, version) for key in self._alive)
            complete = self._dispatcher.epoch_done(epoch)
            if not complete or (self._board.wants(epoch) and not scored):
                return
            self._reported = epoch
            self._report.epoch(epoch, len(self._alive), self._started or time.monotonic())


def row_bytes(packed: PackedTable) -> int:
    """Bytes of a row in a worker's memory: features and target."""
    return 4 * math.prod(packed.input.shape) + 4 * math.prod(packed.target.shape)


def decoded_bytes(packed: PackedTable) -> int:
    """Bytes of a whole packed table in a worker's memory."""
    return packed.rows * row_bytes(packed)
