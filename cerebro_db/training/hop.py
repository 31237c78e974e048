"""A hop in a trainer: a configuration's state, trained over one partition."""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from cerebro_db.configs.functions.callbacks import SCHEDULER, CallbackSpec
from cerebro_db.configs.functions.torch_schedules import TorchSchedule
from cerebro_db.configs.grids.parameters import FitParams
from cerebro_db.configs.names import bare_name, is_custom
from cerebro_db.errors import PACK_AGAIN, ConfigurationFailed, InvalidData, InvalidState
from cerebro_db.protocol import HopReport, RoundReport
from cerebro_db.training import state as states
from cerebro_db.training.averaging import of_replica
from cerebro_db.training.buffers import Shapes
from cerebro_db.training.environment import computing, peak_mb, reset_peak
from cerebro_db.training.functions import function_of, places_of
from cerebro_db.training.mixing import mixed
from cerebro_db.training.partitions import Buffers, CacheKey, Partition, PartitionCache, RowOrder
from cerebro_db.training.peers.parameter_server import ServedRound
from cerebro_db.training.peers.peers import ProcessGroup
from cerebro_db.training.programs import Programs
from cerebro_db.training.recipe import Recipe
from cerebro_db.training.scores.id_fault import IdsBeyond
from cerebro_db.training.scores.targets import TargetFacts


def scheduler_of(fit: FitParams) -> CallbackSpec | None:
    """The scheduler of a configuration, where it has one."""
    return next((callback for callback in fit.callbacks if callback.name == SCHEDULER), None)


def scheduled_rate(
    scheduler: CallbackSpec, epoch: int, current: float, framework: str | None = None
) -> float:
    """The learning rate of an epoch, which is counted from 1; Keras, and schedules, count from 0.

    Args:
        scheduler: which sets it.
        epoch: which begins.
        current: the learning rate of the epoch before.
        framework: name of the backend that computes; None for the default one.

    Raises:
        ConfigurationFailed: it is no number from 0.
    """
    spec = scheduler.schedule
    assert spec is not None
    if is_custom(spec.name):
        function = function_of(bare_name(spec.name))
        given = (epoch - 1, current)[: places_of(function)]
        rate = float(function(*given))
    elif isinstance(spec, TorchSchedule):
        rate = spec.rate(epoch - 1)
    else:
        rate = computing(framework).scheduled_rate(spec, epoch - 1)
    if not (math.isfinite(rate) and rate >= 0):
        raise ConfigurationFailed(
            f"LearningRateScheduler: got the learning rate {rate} for epoch {epoch}"
        )
    return rate


Tick = Callable[[], None]


@dataclass(frozen=True)
class RoundPart:
    """Part of a hop in a round.

    Attributes:
        rank: of the hop among those of the round, from 0.
        rows: as above.
        resets: whether the optimizer begins anew.
        process_group: of those that make the hops of the round together; None where each is made alone.
        steps: of a pass, of whoever has the most.
        is_pipelined: whether a step goes on while the gradients of the one before are exchanged.
        batch_size: rows of a batch; None for those of the configuration.
        served: where one of them holds the weights.
    """

    rank: int
    rows: tuple[int, int]
    resets: bool = False
    process_group: ProcessGroup | None = None
    steps: int = 0
    is_pipelined: bool = False
    batch_size: int | None = None
    served: ServedRound | None = None


@dataclass(frozen=True)
class HopTask:
    """Description of one hop for a worker.

    Attributes:
        recipe: how the configuration is trained.
        order: the order of the rows.
        buffers: what the partition consists of.
        cache_key: names the partition among those that the worker keeps.
        initial_seed: seed of the initial weights.
        is_first: whether there may be no state yet.
        inputs: the shapes of several inputs; none where there is one.
        begins_epoch: whether it is the configuration's first hop of the epoch.
        learning_rate: of this epoch; None for that of the state.
        part: of a round of several hops that begin with the same state.
        worker, pid: who makes it, for the report.
    """

    recipe: Recipe
    order: RowOrder
    buffers: Buffers
    cache_key: CacheKey
    initial_seed: int
    is_first: bool
    inputs: Shapes = ()
    begins_epoch: bool = False
    learning_rate: float | None = None
    part: RoundPart | None = None
    worker: int = 0
    pid: int = 0

    @property
    def rows(self) -> tuple[int, int]:
        """The first row of a pass that is trained on, and the one after the last."""
        return (0, self.total) if self.part is None else self.part.rows

    @functools.cached_property
    def total(self) -> int:
        """Rows of a pass over the partition."""
        return self.order.total(self.buffers)

    @property
    def batch_size(self) -> int:
        """Rows of a batch."""
        own = None if self.part is None else self.part.batch_size
        return own or self.recipe.fit_params.batch_size

    @property
    def rows_per_call(self) -> int:
        """Rows of one call: whole batches."""
        return self.recipe.steps_per_call * self.batch_size


class Hop:
    """Begun with a state, fed with buffers, finished with the next state.

    A partition that the worker keeps, or may keep, is trained when it is
    whole; otherwise the buffers are trained as they come, which gives the
    same batches.

    Attributes:
        course: of a round of which this one has held the weights.
    """

    course: RoundReport | None = None

    def __init__(
        self,
        task: HopTask,
        data: bytes | None,
        weights: bytes | None,
        programs: Programs,
        cache: PartitionCache,
        tick: Tick,
    ) -> None:
        self._task, self._cache, self._tick = task, cache, tick
        self._started = time.monotonic()
        reset_peak()
        self._train_seconds = 0.0
        self._loss_sum, self._rows, self._batches = 0.0, 0, 0
        self._program, self._compiled = programs.get(task.recipe)
        self._program.prepare(task.recipe.compile_params, task.recipe.fit_params)
        if data is None and not task.is_first:
            raise InvalidState("got no state for a hop that is not the first")
        if data is None:
            state = self._program.initial_state(task.recipe, task.initial_seed, weights)
        else:
            state = states.from_bytes(data)
            if task.is_first:
                state = self._program.taken_over(state, task.recipe)
        state = at_rate(state, task)
        if task.part is not None:
            if task.part.resets:
                state = self._program.with_new_optimizer(state, task.recipe)
            state = of_replica(state, task.part.rank)
        self._program.load(state)
        self._partition = cache.get(task.cache_key)
        self._cached = self._partition is not None
        self._stream = _Stream(self._train, task.rows_per_call) if self._partition is None else None
        self._passed = self._ordered = (
            0  # rows that were streamed, of all passes; those in their order
        )

    def feed(
        self, subepoch: int, buffer_id: int, features: np.ndarray, targets: np.ndarray
    ) -> None:
        """Take the rows of a buffer; they come in the order of the hop."""
        self._tick()
        if self._cached:
            return
        if self._partition is None and self._passed == 0 and self._fits(features, targets):
            self._partition = Partition.empty(self._task.buffers, features, targets)
            self._stream = None
        if self._partition is not None:
            self._partition.put(buffer_id, features, targets)
            return
        assert self._stream is not None
        self._task.buffers.check(buffer_id, features, targets)
        if subepoch == 0:
            self._check_ids(buffer_id, features)
        order = self._task.order.rows(subepoch, buffer_id, len(features))
        begun = self._ordered - subepoch * self._task.total
        first, last = (max(bound - begun, 0) for bound in self._task.rows)
        self._stream.feed(subepoch, features[order[first:last]], targets[order[first:last]])
        self._passed += len(features)
        self._ordered += len(order)

    def finish(self) -> tuple[bytes, list[HopReport]]:
        """The next state, and the reports of the hops of which it has come.

        Raises:
            ConfigurationFailed: the loss is not finite.
            InvalidData: buffers of the partition are missing.
        """
        if self._stream is not None:
            self._stream.flush()
        elif self._partition is not None:
            if not self._cached:
                self._cached = self._cache.put(self._task.cache_key, self._partition)
            self._train_whole(self._partition)
        self._check_rows()
        return self._left()

    @property
    def targets(self) -> TargetFacts:
        """Storage of the buffers' targets."""
        return self._task.recipe.targets

    @property
    def inputs(self) -> Shapes:
        """The shapes of several inputs; none where there is one."""
        return self._task.inputs

    # -- inside ----------------------------------------------------------------
    def _left(self) -> tuple[bytes, list[HopReport]]:
        """The next state, and the reports of the hops of which it has come."""
        return states.to_bytes(self._program.save()), [self._report()]

    def _check_rows(self) -> None:
        """Refuse a partition of which rows are missing."""
        passes, (first, last) = self._task.recipe.fit_params.epochs, self._task.rows
        trained = (last - first) * passes
        streamed = None if self._stream is None else self._task.buffers.total * passes
        if self._rows != trained or streamed not in (None, self._passed):
            got, expected = (self._rows, trained) if streamed is None else (self._passed, streamed)
            raise InvalidData(f"got {got} rows in a hop; the partition has {expected}", PACK_AGAIN)

    def _fits(self, features: np.ndarray, targets: np.ndarray) -> bool:
        row = features[:1].nbytes + targets[:1].nbytes
        return row * self._task.buffers.total <= self._cache.limit

    def _train_whole(self, partition: Partition) -> None:
        chunk = self._task.rows_per_call
        for buffer_id, features, _ in partition.named_pieces():
            self._check_ids(buffer_id, features)
        for subepoch in range(self._task.recipe.fit_params.epochs):
            order = self._task.order.whole(subepoch, partition)[slice(*self._task.rows)]
            for start in range(0, len(order), chunk):
                rows = order[start : start + chunk]
                self._train(partition.features[rows], partition.targets[rows])

    def _check_ids(self, buffer_id: int, features: np.ndarray) -> None:
        """Refuse a row of a buffer with an id beyond an embedding."""
        try:
            self._program.check_ids(features)
        except IdsBeyond as error:
            where = f"row {error.row + 1} of buffer {buffer_id} of partition {self._task.order.partition_key}"
            raise error.within(where) from None

    def _train(self, features: np.ndarray, targets: np.ndarray) -> None:
        self._tick()
        started = time.monotonic()
        loss_sum = self._trained(features, targets)
        self._train_seconds += time.monotonic() - started
        if not math.isfinite(loss_sum):
            raise ConfigurationFailed(
                f"the loss became {loss_sum} within rows {self._rows} to {self._rows + len(features)} "
                f"of partition {self._task.order.partition_key}, epoch {self._task.order.epoch}",
                hint="a lower learning rate, or clipnorm, may help",
            )
        self._loss_sum += loss_sum
        self._rows += len(features)

    def _trained(self, features: np.ndarray, targets: np.ndarray) -> float:
        """Train on the rows of a call; the sum over them of the loss of their batch."""
        alpha, size = self._task.recipe.fit_params.mixup, self._task.batch_size
        if alpha is None:
            return self._program.train(features, targets)
        order = self._task.order
        seeds = (self._task.initial_seed, order.epoch, order.partition_key)
        rows, partners = mixed(features, targets, alpha, seeds, self._batches, size)
        self._batches += -(-len(features) // size)
        return self._program.train(rows, targets, partners)

    def _report(self) -> HopReport:
        elapsed = time.monotonic() - self._started
        return HopReport(
            worker=self._task.worker,
            pid=self._task.pid,
            partition_key=self._task.order.partition_key,
            rows=self._rows,
            loss=self._loss_sum / max(self._rows, 1),
            read_seconds=max(elapsed - self._train_seconds, 0.0),
            train_seconds=self._train_seconds,
            compiled=self._compiled,
            cached=self._cached,
            memory_mb=peak_mb(),
        )


def at_rate(state: states.State, task: HopTask) -> states.State:
    """The state with the learning rate that callbacks have decided for its epoch."""
    rate, scheduler = task.learning_rate, scheduler_of(task.recipe.fit_params)
    if scheduler is not None and task.begins_epoch:
        current = float(state[states.LEARNING_RATE])
        rate = scheduled_rate(scheduler, task.order.epoch, current, task.recipe.backend)
    return state if rate is None else state | {states.LEARNING_RATE: np.asarray(rate, np.float32)}


class _Stream:
    """Cuts rows that come buffer by buffer into calls of whole batches.

    Rows are copied only for a call that has rows of several buffers.
    """

    def __init__(self, train: Callable[[np.ndarray, np.ndarray], None], chunk: int) -> None:
        self._train = train
        self._chunk = chunk
        self._subepoch = 0
        self._features: list[np.ndarray] = []
        self._targets: list[np.ndarray] = []
        self._held = 0

    def feed(self, subepoch: int, features: np.ndarray, targets: np.ndarray) -> None:
        """Take rows; train all full calls that they complete."""
        if subepoch != self._subepoch:
            self.flush()
            self._subepoch = subepoch
        start = min(self._chunk - self._held, len(features)) if self._held else 0
        self._hold(features[:start], targets[:start])
        if self._held == self._chunk:
            self.flush()
        whole = len(features) - (len(features) - start) % self._chunk
        for first in range(start, whole, self._chunk):
            self._train(features[first : first + self._chunk], targets[first : first + self._chunk])
        self._hold(features[whole:], targets[whole:])

    def flush(self) -> None:
        """Train what is held, an incomplete batch at the end included."""
        if self._held:
            self._train(np.concatenate(self._features), np.concatenate(self._targets))
        self._features, self._targets, self._held = [], [], 0

    def _hold(self, features: np.ndarray, targets: np.ndarray) -> None:
        if len(features):
            self._features.append(features)
            self._targets.append(targets)
            self._held += len(features)
