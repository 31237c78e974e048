"""A hop that is made together with those over the other partitions: gradients are averaged at each step.

Every trainer has a replica. All begin with the same state and take the same steps, by the mean of their
gradients weighted by rows, so that they stay the same to the bit. A partition that has no rows left in
a pass takes the steps of the others.

Where a parameter server holds the weights, a hop pushes gradients and pulls weights: the root has the server
in a thread, and its trainer is a client as all others are.
"""

from __future__ import annotations

import base64
import math
import time
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np

from cerebro_db.errors import PeerLost
from cerebro_db.protocol import HopReport, RoundReport
from cerebro_db.training import state as states
from cerebro_db.training.hop import Hop, HopTask, RoundPart, Tick
from cerebro_db.training.partitions import PartitionCache
from cerebro_db.training.peers.network_peers import peers_of
from cerebro_db.training.peers.parameter_server import (
    Client,
    ParameterServer,
    Phase,
    Record,
    ServedRound,
    ServerPeers,
)
from cerebro_db.training.peers.peers import Exchange, Peers, ProcessGroup
from cerebro_db.training.peers.updates import GroupModel, groups_of
from cerebro_db.training.programs import Programs
from cerebro_db.training.state import AVERAGES, OPTIMIZER, State
from cerebro_db.wire import convert, plain

_WAIT_SECONDS = 0.1


class GroupHop(Hop):
    """Hop of a round that several trainers make together; its arguments are those of ``Hop``.

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

    def finish(self) -> tuple[bytes, list[HopReport]]:
        """The next state and the reports of all, if this one is the root; else its own report."""
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

    def _left(self) -> tuple[bytes, list[HopReport]]:
        if not self._own_steps:
            self._follow(self._steps * self._task.recipe.fit_params.epochs)
        last = self._pipe.mean() if self._pipe is not None else None
        if last is not None:
            self._program.apply(last)
        state = self._saved()
        averaged = self._averaged(state)
        report = self._report()
        messages = self._peers.gather({"report": plain(report), "own": self._own(state)})
        if not messages:
            return b"", [report]
        first = {
            name: np.frombuffer(base64.b64decode(text), state[name].dtype).reshape(
                state[name].shape
            )
            for name, text in messages[0]["own"].items()
        }
        reports = [convert(HopReport, one["report"], "report") for one in messages]
        return states.to_bytes(state | averaged | first), reports

    def _own(self, state: State) -> dict[str, str]:
        """What the steps of a replica alone have changed, such as its generator and a count of its batches.

        Replicas may have taken different numbers of them: whichever is the root, what counts is that of the first.
        """
        if self._part.rank:
            return {}
        alike = self._program.trained | self._program.untrained.keys()
        return {
            name: base64.b64encode(array.tobytes()).decode()
            for name, array in state.items()
            if name not in alike and not name.startswith((OPTIMIZER, AVERAGES))
            if array.dtype.kind != "b"  # no step changes a mask
        }

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


_SERVER = "server"


class ParameterServerHop(GroupHop):
    """Hop of a round whose weights a server holds; its arguments are those of ``Hop``."""

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
        assert task.part.served is not None
        assert task.part.process_group is not None
        self._served: ServedRound = task.part.served
        self._server: ParameterServer | None = None
        self._client: Client | None = None
        self._has_begun = False
        try:
            self._client = self._enter(task.part.process_group, programs)
        except BaseException:
            self._leave()
            raise

    @property
    def model(self) -> GroupModel | None:
        """Model of the seconds of an update, where this one is the root and probes were made."""
        return None if self._server is None else self._server.model

    # -- inside ----------------------------------------------------------------
    def _connected(self, process_group: ProcessGroup, floats: int, tick: Tick) -> Peers:
        self._others = ServerPeers(process_group, floats, tick)
        return self._others

    def _enter(self, process_group: ProcessGroup, programs: Programs) -> Client:
        """Be a client of the server, which the root starts."""
        if not process_group.is_root:
            return Client(self._others, self._others.links[0])
        program, _ = programs.get(self._task.recipe, _SERVER)
        self._server = ParameterServer(
            program, self._task.recipe, self._program.save(), self._served, self._others
        )
        return Client(self._others, self._server.own)

    def _trained(self, features: np.ndarray, targets: np.ndarray) -> float:
        self._begin(features, targets)
        return super()._trained(features, targets)

    def _begin(self, features: np.ndarray | None, targets: np.ndarray | None) -> None:
        """Make the probes of the round, if there are any, with the first rows; once."""
        if self._has_begun:
            return
        self._has_begun = True
        assert self._client is not None
        start = self._program.save() if self._served.groups is None else None
        while (phase := self._phase()).is_probe:
            assert start is not None
            self._program.load(start)
            self._client.begin()
            self._probe(features, targets)
        if start is not None:
            self._program.load(start)
        group = groups_of(self._others.size, phase.groups)[self._others.rank]
        self._steps = self._served.steps_of(phase.groups)[group]

    def _phase(self) -> Phase:
        assert self._client is not None
        try:
            return self._client.phase()
        except BaseException:
            self._check()
            raise

    def _probe(self, features: np.ndarray | None, targets: np.ndarray | None) -> None:
        """Take the steps of a probe, over and over with the same rows if these are too few."""
        size, first = self._batch_size, 0
        for _ in range(self._served.probe_steps):
            if features is None or targets is None:
                self._apply(None, 0)
                continue
            rows = slice(first, first + size)
            loss, gradients = self._program.gradients(features[rows], targets[rows])
            self._apply(gradients, len(features[rows]), loss)
            first = first + size if first + size < len(features) else 0

    def _apply(self, gradients: np.ndarray | None, rows: int, loss: float = 0.0) -> None:
        """Have the server take a step by these gradients and those of the group."""
        assert self._client is not None
        try:
            weights = self._client.push(gradients, rows, loss, self._count)
        except BaseException:
            self._check()
            raise
        # Of memory that is written again TensorFlow must not keep a part.
        self._program.take(weights.copy())

    def _check(self) -> None:
        """Raise what has ended the server."""
        if self._server is not None:
            self._server.check()

    def _follow(self, steps: int) -> None:
        if not self._own_steps:
            self._begin(None, None)
            steps = self._steps * self._task.recipe.fit_params.epochs
        super()._follow(steps)

    def _saved(self) -> State:
        """The state that this one has come to, with what the server holds."""
        own = self._program.save()
        if self._server is None:
            return own
        held = self._server.wait(self._tick)
        assert self._server.record is not None
        self.course = _course(self._server.record)
        of_server = {
            name: array
            for name, array in held.items()
            if name in self._program.trained or name.startswith((OPTIMIZER, AVERAGES))
        }
        return own | of_server

    def _leave(self) -> None:
        if self._server is not None:
            self._server.close()
        super()._leave()


def _course(record: Record) -> RoundReport:
    """Report of a round, by which a replay makes it with the same bits."""
    return RoundReport(
        groups=record.groups,
        momentum=record.momentum,
        learning_rate=record.rate,
        probes=record.probes,
        counts=[one.updates for one in record.staleness],
        staleness=[one.mean for one in record.staleness],
        stalest=[one.most for one in record.staleness],
        updates=record.order,
    )
