"""A hop whose weights a parameter server holds: it pushes gradients, and pulls weights.

All trainers of a round begin with the same state. The root has the server in a thread; its trainer is a
client as all others are.
"""

from __future__ import annotations

import numpy as np

from cerebro_db.training.hop import HopTask, Programs, Tick
from cerebro_db.training.partitions import PartitionCache
from cerebro_db.training.peers.group import GroupHop
from cerebro_db.training.peers.parameter_server import (
    Client,
    ParameterServer,
    Phase,
    Record,
    ServedRound,
    ServerPeers,
)
from cerebro_db.training.peers.peers import Peers, ProcessGroup
from cerebro_db.training.peers.updates import GroupModel, groups_of
from cerebro_db.training.state import AVERAGES, OPTIMIZER, State

_SERVER = "server"


class ParameterServerHop(GroupHop):
    """One of the hops of a round that has a server; the arguments are those of ``Hop``.

    Attributes:
        record: of the round, where this one is the root.
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
        assert task.part.served is not None
        assert task.part.process_group is not None
        self._served: ServedRound = task.part.served
        self._server: ParameterServer | None = None
        self._client: Client | None = None
        self._has_begun = False
        self.record: Record | None = None
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
        self.record = self._server.record
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
