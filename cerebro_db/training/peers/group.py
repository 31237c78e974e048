"""A hop that is made together with those over the other partitions: gradients are averaged at each step.

Every trainer has a replica. All begin with the same state and take the same steps, by the mean of their
gradients weighted by rows, so that they stay the same to the bit. A partition that has no rows left in
a pass takes the steps of the others.
"""

from __future__ import annotations

import math
import time
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict
from typing import Any

import numpy as np

from cerebro_db.errors import PeerLost
from cerebro_db.training import state as states
from cerebro_db.training.averaging import generators_of
from cerebro_db.training.hop import Hop, HopReport, HopTask, Programs, RoundPart, Tick
from cerebro_db.training.partitions import PartitionCache
from cerebro_db.training.peers.network_peers import peers_of
from cerebro_db.training.peers.peers import Exchange, ProcessGroup
from cerebro_db.training.state import State

_WAIT_SECONDS = 0.1


class GroupHop(Hop):
    """One of the hops of a round; the arguments are those of ``Hop``.

    Attributes:
        reports: of all of them by rank, where this one is the root.

    Raises:
        PeerLost: another one of them has ended; also by the methods.
        PeersApart: another one of them, on another host, cannot be reached.
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
        assert task.part.process_group is not None
        self._part: RoundPart = task.part
        first, last = task.rows
        self._batch_size = task.batch_size
        self._own_steps = math.ceil((last - first) / self._batch_size)
        self._taken = 0
        self.reports: list[dict[str, Any]] = []
        self._count = self._program.gradient_size
        size = max(self._count, sum(self._program.untrained.values()))
        self._peers = self._connected(task.part.process_group, size, tick)
        self._steps = task.part.steps  # of a pass
        self._pipe = _Pipe(self._peers, tick) if task.part.is_pipelined else None
        self._started = time.monotonic()  # until then it waited for others

    def feed(
        self, subepoch: int, buffer_id: int, features: np.ndarray, targets: np.ndarray
    ) -> None:
        """Take the rows of a buffer; they come in the order of the hop."""
        try:
            super().feed(subepoch, buffer_id, features, targets)
        except BaseException:
            self._leave()
            raise

    def finish(self) -> tuple[bytes, HopReport]:
        """The next state, if this one is the root, and the report."""
        try:
            return super().finish()
        finally:
            self._leave()

    # -- inside ----------------------------------------------------------------
    def _connected(self, process_group: ProcessGroup, floats: int, tick: Tick) -> Exchange:
        """The others, when all are there."""
        return peers_of(process_group, floats, tick)

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
        self._apply(gradients, rows, loss)
        self._taken += 1
        if self._taken == self._own_steps:  # of this pass: the others may have more
            self._follow(self._steps - self._own_steps)
            self._taken = 0
        return loss * rows

    def _follow(self, steps: int) -> None:
        """Take steps to which this one adds nothing."""
        for _ in range(steps):
            self._apply(None, 0)

    def _apply(self, gradients: np.ndarray | None, rows: int, loss: float = 0.0) -> None:
        """Take a step by the mean of these gradients; pipelined, by that of the step before."""
        if self._pipe is None:
            self._program.apply(self._peers.mean(gradients, rows, self._count))
            return
        before = self._pipe.mean()
        if before is not None:
            self._program.apply(before)
        self._pipe.begin(gradients, rows, self._count)

    def _leave(self) -> None:
        if self._pipe is not None:
            self._pipe.close()
        self._peers.close()

    def _left(self) -> tuple[bytes, HopReport]:
        if not self._own_steps:
            self._follow(self._steps * self._task.recipe.fit_params.epochs)
        last = self._pipe.mean() if self._pipe is not None else None
        if last is not None:
            self._program.apply(last)
        state = self._saved()
        averaged = self._averaged(state)
        report = self._report()
        own = {name: state[name].tolist() for name in generators_of(state)}
        messages = self._peers.gather({"report": asdict(report), "generators": own})
        if not messages:
            return b"", report
        self.reports = [one["report"] for one in messages]
        # Replicas may have taken different numbers of steps: whichever is the root, they are those of the first.
        first = {
            name: np.asarray(array, state[name].dtype)
            for name, array in messages[0]["generators"].items()
        }
        return states.to_bytes(state | averaged | first), report

    def _saved(self) -> State:
        """The state that this one has come to."""
        return self._program.save()

    def _averaged(self, state: State) -> State:
        """Mean over the replicas, weighted by rows, of what no gradient changes."""
        sizes = self._program.untrained
        if not sizes or not self._part.steps:
            return {}
        flat = np.concatenate([state[name].reshape(-1) for name in sizes])
        own = flat if self._rows else None
        mean = self._peers.mean(own, self._rows, flat.size, exact=True)
        ends = np.cumsum(list(sizes.values()))[:-1]
        parts = dict(zip(sizes, np.split(mean, ends), strict=True))
        return {name: part.reshape(state[name].shape) for name, part in parts.items()}


class _Pipe:
    """Exchanges the gradients of one step while those of the next are computed: a pipeline of width 2.

    Li et al.: Pipe-SGD: A Decentralized Pipelined SGD Framework for Distributed Deep Net Training,
    NeurIPS 2018, arXiv 1811.03619.

    Args:
        peers: with whom.
        tick: called while waiting.
    """

    def __init__(self, peers: Exchange, tick: Tick) -> None:
        self._peers, self._tick = peers, tick
        self._thread = ThreadPoolExecutor(1, "exchange")
        self._under_way: Future[np.ndarray] | None = None
        self._is_closed = False

    def begin(self, own: np.ndarray | None, rows: int, count: int) -> None:
        """Exchange gradients; meanwhile the peers belong to another thread."""
        self._peers.tick = self._heed
        self._under_way = self._thread.submit(self._peers.mean, own, rows, count)

    def mean(self) -> np.ndarray | None:
        """Result of the exchange that was begun last; None where there is none."""
        if self._under_way is None:
            return None
        while True:
            try:
                found = self._under_way.result(_WAIT_SECONDS)
                break
            except TimeoutError:
                self._tick()
        self._under_way, self._peers.tick = None, self._tick
        return found

    def close(self) -> None:
        """End what is under way."""
        self._is_closed = True
        self._thread.shutdown(wait=True)

    def _heed(self) -> None:
        if self._is_closed:
            raise PeerLost("the exchange was ended")
