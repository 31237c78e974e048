"""What the statements of a run are made from, put together from its plan and its workers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from cerebro_db.database.dialects.postgresql_training import HopOrder, ScanOrder
from cerebro_db.driver.fit_setup import Configuration, RunSetup, row_bytes
from cerebro_db.driver.scoreboard import TRAINING, Scan
from cerebro_db.driver.state_store import StateTable
from cerebro_db.driver.tasks import TaskWriter
from cerebro_db.driver.workers import RunContext, Worker
from cerebro_db.planning.orders import Visit


class Orders:
    """Makes the orders of one run.

    Args:
        setup: of the run.
        context: what it works with.
        tasks: what workers are told.
    """

    def __init__(self, setup: RunSetup, context: RunContext, tasks: TaskWriter) -> None:
        self._setup, self._context, self._tasks = setup, context, tasks
        self._hops_an_epoch = len(setup.packed.partitions)
        self._next: dict[tuple[int, int], int] = {}

    def know(self, visits: Iterable[Visit]) -> None:
        """These are planned: where states go is looked up in them."""
        for visit in visits:
            self._next[visit.mst_key, self.version(visit)] = visit.partition_key

    def version(self, visit: Visit) -> int:
        """Hops that a configuration has done before a visit."""
        return (visit.epoch - 1) * self._hops_an_epoch + visit.position

    def hop(
        self,
        worker: Worker,
        configuration: Configuration,
        visit: Visit,
        source: StateTable | None,
        target: StateTable,
        learning_rate: float | None,
    ) -> HopOrder:
        """The order of a visit.

        Args:
            worker: that makes it.
            configuration: whose visit it is.
            visit: of the plan.
            source, target: the tables of the state before and afterwards.
            learning_rate: that a callback has decided, None for that of the state.
        """
        version, architecture = self.version(visit), configuration.architecture
        starts_from_weights = version == 0 and architecture.has_weights
        return HopOrder(
            source=source.name if source else None,
            target=target.name,
            run_id=self._context.run_id,
            mst_key=visit.mst_key,
            epoch=visit.epoch,
            position=visit.position,
            partition_key=visit.partition_key,
            version=version,
            next_partition_key=self._next.get((visit.mst_key, version + 1)),
            worker=worker.number,
            waited=worker.waited(),
            task=self._tasks.visit(configuration, visit, version == 0, learning_rate),
            salt=self._tasks.salt(visit) if configuration.fit_params.shuffle else None,
            passes=1 if self._fits(visit.partition_key) else configuration.fit_params.epochs,
            reads=f"{TRAINING}/{visit.partition_key}" not in worker.kept,
            weights_of=architecture.model_id if starts_from_weights else None,
            preparation=self._context.preparation,
        )

    def scan(
        self, worker: Worker, scan: Scan, configurations: Sequence[Configuration], version: int
    ) -> ScanOrder:
        """The order of a scan that scores a version of some configurations."""
        return ScanOrder(
            states=[table.name for table in worker.tables],
            partition_key=scan.partition_key,
            task=self._tasks.scan(scan.dataset, scan.partition_key),
            mst_keys=[configuration.mst_key for configuration in configurations],
            versions=[version] * len(configurations),
            tasks=[self._tasks.score(configuration) for configuration in configurations],
            reads=scan.name not in worker.kept,
            preparation=self._context.preparation,
        )

    def _fits(self, partition_key: int) -> bool:
        """Whether a worker can hold a partition; the same rule as the worker's."""
        packed = self._setup.packed
        rows = next(p.rows for p in packed.partitions if p.partition_key == partition_key)
        return rows * row_bytes(packed) <= self._context.cache_bytes
