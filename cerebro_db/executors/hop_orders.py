"""Orders of workers: the values of the statements of a hop, an average or a scan."""

from __future__ import annotations

import time
from collections.abc import Sequence

from cerebro_db.core.spec import TRAINING, Hop
from cerebro_db.core.state import RunState
from cerebro_db.core.strategies import rows_of_round
from cerebro_db.core.tasks import Average, Scan, Step
from cerebro_db.decide.plan import next_partitions
from cerebro_db.executors.tasks import RoundPart
from cerebro_db.executors.workers import RunResources, Worker
from cerebro_db.postgres.catalog.states import StateTable
from cerebro_db.postgres.dialects.statements.orders import AverageOrder, HopOrder, ScanOrder
from cerebro_db.postgres.tables.packed import PackedTable


class OrderWriter:
    """Writes the orders of one run; the tables of states that an order uses are its worker's until that is done."""

    def __init__(self, resources: RunResources) -> None:
        self._resources = resources

    @property
    def _packed(self) -> PackedTable:
        return self._resources.tables[TRAINING]

    def hops(self, state: RunState, worker: Worker, hops: Sequence[Hop]) -> list[HopOrder]:
        """Orders of hops, by ascending mst_key; the tables that they use are the worker's."""
        store, spec = self._resources.store, state.spec
        sources = {hop: store.of((hop.mst_key, spec.base(hop))) for hop in hops}
        # One statement writes one table: where one of the states must last, all of them do.
        target = store.target(*map(spec.left, hops))
        worker.target, worker.tables = target, store.use([*sources.values(), target])
        orders = [
            self.hop(state, worker, hop, sources[hop], target, self.part(state, hop))
            for hop in sorted(hops, key=lambda hop: hop.mst_key)
        ]
        return self.taken(worker, orders)

    @staticmethod
    def taken(worker: Worker, orders: list[HopOrder]) -> list[HopOrder]:
        """Remember the orders of a worker, which begins with them now."""
        worker.orders = {order.mst_key: order for order in orders}
        worker.sent = time.monotonic()
        return orders

    def hop(
        self,
        state: RunState,
        worker: Worker,
        hop: Hop,
        source: StateTable | None,
        target: StateTable | None,
        part: RoundPart | None,
    ) -> HopOrder:
        resources, track = self._resources, state.tracks[hop.mst_key]
        one, version = track.configuration, state.spec.base(hop)
        starts_from_weights = version == 0 and one.architecture.has_weights
        rate = track.verdict.learning_rate
        following = next_partitions(state, hop)
        return HopOrder(
            source=source.name if source else None,
            target=target.name if target else None,
            run_id=resources.run_id,
            mst_key=hop.mst_key,
            epoch=hop.epoch,
            position=hop.position,
            partition_key=hop.partition_key,
            version=version,
            makes=state.spec.left(hop),
            next_partition_key=following[0] if following else None,
            others=following[1:],
            task=resources.tasks.hop(
                one,
                hop,
                (self._number(worker, hop), worker.pid),
                is_first=version == 0,
                begins_epoch=state.spec.begins_epoch(hop),
                learning_rate=rate,
                part=part,
            ),
            salt=resources.tasks.salt(hop) if one.fit_params.shuffle else None,
            passes=1 if self._fits(hop.partition_key) else one.fit_params.epochs,
            reads=(TRAINING, hop.partition_key) not in worker.kept,
            weights_of=one.architecture.model_id if starts_from_weights else None,
            preparation=resources.preparation,
            home=worker.home,
        )

    def part(self, state: RunState, hop: Hop) -> RoundPart | None:
        """The part of a hop in a round of several; None where hops follow each other."""
        size = state.spec.round_size(hop)
        if size == 1 and not state.spec.is_joined(hop):
            return None
        return RoundPart(hop.position % size, self.rows_of(state, hop), state.spec.strategy.resets)

    def rows_of(self, state: RunState, hop: Hop) -> tuple[int, int]:
        """Rows of a pass over its partition that a hop of a round trains on."""
        rows = {one.partition_key: one.rows for one in self._packed.partitions}
        size = state.tracks[hop.mst_key].configuration.fit_params.batch_size
        number, most = state.spec.round_of(hop), max(rows.values())
        return rows_of_round(
            rows[hop.partition_key], most, size, number, state.spec.strategy.rounds
        )

    def average(self, state: RunState, worker: Worker, task: Average) -> AverageOrder:
        """The order of an average; the tables that it uses are the worker's."""
        store, spec = self._resources.store, state.spec
        epoch, position = divmod(task.version, spec.hops_an_epoch)
        keys = sorted(spec.partitions[TRAINING])
        hops = [Hop(task.mst_key, epoch + 1, position + rank, key) for rank, key in enumerate(keys)]
        parts, makes = [(task.mst_key, spec.left(hop)) for hop in hops], task.version + len(hops)
        worker.target, track = store.target(makes), state.tracks[task.mst_key]
        sources = store.use_of(parts)
        worker.tables = sources + store.use([worker.target])
        ranges = [self.rows_of(state, hop) for hop in hops]
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

    def _number(self, worker: Worker, hop: Hop) -> int:
        """Number that a hop is recorded with; where one session trains everywhere, that of the partition."""
        if not isinstance(worker.task, Step):
            return worker.number
        keys = [partition.partition_key for partition in self._packed.partitions]
        return keys.index(hop.partition_key)

    def _fits(self, partition_key: int) -> bool:
        """True if a worker can hold a partition; the same rule as the worker's."""
        rows = next(p.rows for p in self._packed.partitions if p.partition_key == partition_key)
        return rows * self._packed.row_bytes <= self._resources.cache_bytes

    def scan(self, state: RunState, worker: Worker, scan: Scan) -> ScanOrder:
        """The order of a scan; the tables that it reads are the worker's until it has ended."""
        resources, store, group = self._resources, self._resources.store, scan.group
        tracks = [state.tracks[key] for key in group.mst_keys]
        found = [track.configuration for track in tracks if not track.ended]
        version = group.epoch * state.spec.hops_an_epoch
        store.give_back(worker.tables)
        worker.tables = store.use_of([(one.mst_key, version) for one in found])
        stored = state.spec.stored(scan.dataset)
        return ScanOrder(
            states=[table.name for table in worker.tables],
            partition_key=scan.partition_key,
            task=resources.tasks.scan(stored, scan.partition_key),
            mst_keys=[one.mst_key for one in found],
            versions=[version] * len(found),
            tasks=[resources.tasks.score(one, scan.dataset, scan.partition_key) for one in found],
            reads=(stored, scan.partition_key) not in worker.kept,
            preparation=resources.preparation,
            home=worker.home,
        )
