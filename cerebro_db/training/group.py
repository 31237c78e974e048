"""A hop that is made together with those over the other partitions: gradients are averaged at each step.

Every trainer has a replica. All begin with the same state and take the same steps, by the mean of their
gradients weighted by rows, so that they stay the same to the bit. A partition that has no rows left in
a pass takes the steps of the others.
"""

from __future__ import annotations

import math
import time
from dataclasses import asdict
from typing import Any

import numpy as np

from cerebro_db.training import state as states
from cerebro_db.training.averaging import of_replica
from cerebro_db.training.hop import Hop, HopReport, HopTask, Programs, RoundPart, Tick
from cerebro_db.training.partitions import PartitionCache
from cerebro_db.training.peers import Peers
from cerebro_db.training.state import State


class GroupHop(Hop):
    """One of the hops of a round; the arguments are those of ``Hop``.

    Attributes:
        reports: of all of them by their places, where this one leads.

    Raises:
        PeerLost: another one of them has ended; also by the methods.
    """

    def __init__(
        self,
        task: HopTask,
        data: bytes | None,
        weights: bytes | None,
        programs: Programs,
        cache: PartitionCache,
        tick: Tick,
    ) -> None:
        super().__init__(task, data, weights, programs, cache, tick)
        assert task.part is not None
        assert task.part.meeting is not None
        self._part: RoundPart = task.part
        first, last = task.rows
        self._batch_size = task.recipe.fit_params.batch_size
        self._own_steps = math.ceil((last - first) / self._batch_size)
        self._taken = 0
        self.reports: list[dict[str, Any]] = []
        self._count = self._program.gradient_size
        size = max(self._count, sum(self._program.untrained.values()))
        self._peers = Peers(task.part.meeting, size, tick)
        self._started = time.monotonic()  # until then it waited for others

    def feed(
        self, subepoch: int, buffer_id: int, features: np.ndarray, targets: np.ndarray
    ) -> None:
        """Take the rows of a buffer; they come in the order of the hop."""
        try:
            super().feed(subepoch, buffer_id, features, targets)
        except BaseException:
            self._peers.close()
            raise

    def finish(self) -> tuple[bytes, HopReport]:
        """The next state, if this one leads, and the report."""
        try:
            return super().finish()
        finally:
            self._peers.close()

    # -- inside ----------------------------------------------------------------
    def _trained(self, features: np.ndarray, targets: np.ndarray) -> float:
        total = 0.0
        for start in range(0, len(features), self._batch_size):
            stop = start + self._batch_size
            total += self._step(features[start:stop], targets[start:stop])
        return total

    def _step(self, features: np.ndarray, targets: np.ndarray) -> float:
        """A step on a batch; its loss times its rows."""
        loss, gradients = self._program.gradients(features, targets)
        rows = len(features)
        self._program.apply(self._peers.mean(gradients, rows, self._count))
        self._taken += 1
        if self._taken == self._own_steps:  # of this pass: the others may have more
            self._follow(self._part.steps - self._own_steps)
            self._taken = 0
        return loss * rows

    def _follow(self, steps: int) -> None:
        """Take steps to which this one adds nothing."""
        for _ in range(steps):
            self._program.apply(self._peers.mean(None, 0, self._count))

    def _left(self) -> tuple[bytes, HopReport]:
        if not self._own_steps:
            self._follow(self._part.steps * self._task.recipe.fit_params.epochs)
        state = self._program.save()
        averaged = self._averaged(state)
        report = self._report()
        self.reports = self._peers.gather(asdict(report))
        if not self.reports:
            return b"", report
        return states.to_bytes(of_replica(state | averaged, -self._part.place)), report

    def _averaged(self, state: State) -> State:
        """What no gradient changes: its mean over the replicas, weighted by rows."""
        sizes = self._program.untrained
        if not sizes or not self._part.steps:
            return {}
        flat = np.concatenate([state[name].reshape(-1) for name in sizes])
        mean = self._peers.mean(flat if self._rows else None, self._rows, flat.size)
        ends = np.cumsum(list(sizes.values()))[:-1]
        parts = dict(zip(sizes, np.split(mean, ends), strict=True))
        return {name: part.reshape(state[name].shape) for name, part in parts.items()}
