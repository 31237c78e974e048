"""A parameter server: a thread of the root's trainer holds the weights, and applies what all trainers push.

Each trainer has a slot in memory that all of them share. It writes a gradient there and tells the server;
the answer comes when the update was made, and then the weights are there instead. Who is in a group, and
whose update is next, is a matter of ``updates``.
"""

from __future__ import annotations

import json
import struct
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, Pipe, wait
from typing import Any

import numpy as np
from msgspec import structs

from cerebro_db.configs.grids.parameters import CompileParams
from cerebro_db.errors import InvalidState, PeerLost
from cerebro_db.relay.machine import cores
from cerebro_db.training.backends import Program
from cerebro_db.training.peers import updates
from cerebro_db.training.peers.listeners import Tick
from cerebro_db.training.peers.peers import Peers, ProcessGroup, impatient, mean_of
from cerebro_db.training.peers.updates import GroupModel, Probe, Setting, Staleness, Updates
from cerebro_db.training.recipe import Recipe
from cerebro_db.training.state import LEARNING_RATE, State

_WAIT_SECONDS = 0.1
_PUSH = struct.Struct("<3d")  # rows, loss, seconds of computing
_RANK = struct.Struct("<i")


@dataclass(frozen=True)
class ServedRound:
    """A round whose weights a server holds.

    Attributes:
        groups: of the trainers; None where probes choose them.
        steps: of a pass over its rows, of each rank.
        passes: of the round.
        momentum: of the optimizer; None for its own.
        rate: learning rate to begin with; None for that of the state.
        order: as it was recorded, to be followed; None for the order in which gradients come.
        probe_steps: of each probe.
    """

    groups: int | None
    steps: tuple[int, ...]
    passes: int = 1
    momentum: float | None = None
    rate: float | None = None
    order: bytes | None = None
    probe_steps: int = 0

    def steps_of(self, groups: int) -> list[int]:
        """Steps of a pass that each group takes: those of whoever of it has the most."""
        found = [0] * groups
        for steps, group in zip(
            self.steps, updates.groups_of(len(self.steps), groups), strict=True
        ):
            found[group] = max(found[group], steps)
        return found


@dataclass(frozen=True)
class Phase:
    """Part of a round: a probe, or the training itself."""

    groups: int
    is_probe: bool


@dataclass(frozen=True)
class Record:
    """Record of a round, by which a replay makes it with the same bits.

    Attributes:
        groups: of the trainers.
        momentum: of the optimizer; None for its own.
        rate: learning rate that the round began with, where it was chosen; else None.
        probes: JSON of all probes; empty where there were none.
        staleness: of each rank.
        order: of the updates.
        seconds: that all updates took.
    """

    groups: int
    momentum: float | None
    rate: float | None
    probes: str
    staleness: Sequence[Staleness]
    order: bytes
    seconds: float = field(default=0.0, compare=False)


class Client:
    """Connection of a trainer to the server of the weights.

    Args:
        peers: of which it is one.
        link: to the server.
    """

    def __init__(self, peers: ServerPeers, link: Connection) -> None:
        self._peers, self._link = peers, link
        self._since = time.monotonic()
        peers.send(link, _RANK.pack(peers.rank))

    def phase(self) -> Phase:
        """The next part of the round, when all have ended that before."""
        phase = json.loads(self._peers.receive(self._link))
        return Phase(phase["groups"], phase["is_probe"])

    def begin(self) -> None:
        """The first gradient is computed from now on."""
        self._since = time.monotonic()

    def push(self, gradients: np.ndarray | None, rows: int, loss: float, count: int) -> np.ndarray:
        """Hand over gradients, None for none; the weights after the update, ``float32[count]``."""
        slot = self._peers.slot(self._peers.rank)[:count]
        if gradients is not None:
            slot[:] = gradients
        seconds = time.monotonic() - self._since
        self._peers.send(self._link, _PUSH.pack(rows, loss, seconds))
        self._peers.receive(self._link)
        self._since = time.monotonic()
        return slot

    def close(self) -> None:
        """Leave the server."""
        with suppress(OSError):
            self._link.close()


class ServerPeers(Peers):
    """Peers of a round that has a server."""

    def __init__(self, process_group: ProcessGroup, floats: int, tick: Tick) -> None:
        super().__init__(process_group, floats, tick)
        self.rank, self.size = process_group.rank, process_group.size

    @property
    def links(self) -> list[Connection]:
        """Links of the root to all others; of the others, to the root."""
        return self._links

    def slot(self, rank: int) -> np.ndarray:
        """The memory of a trainer, ``float32[floats]``."""
        found: np.ndarray = self._parts[rank]
        return found

    def send(self, link: Connection, data: bytes) -> None:
        """Send a message to a peer."""
        try:
            link.send_bytes(data)
        except OSError:
            raise PeerLost("a peer has ended") from None

    def receive(self, link: Connection) -> bytes:
        """Next message of a peer."""
        return self._received(link)


@dataclass
class _Reports:
    """Reports of the trainers with their last pushes, and figures of the whole probe.

    Attributes:
        rows, pushes: by rank.
        seconds: of the last gradient in a probe, by rank.
        counted, total: rows, and their losses, of the second half of a probe.
        computed: seconds of the slowest gradients of all updates.
    """

    rows: list[float]
    pushes: list[int]
    seconds: list[float]
    counted: float = 0.0
    total: float = 0.0
    computed: float = 0.0


class ParameterServer:
    """Holds the weights of a round, in a thread of the root's trainer.

    Args:
        program: that nobody else uses, for the optimizer and its variables.
        recipe: of the configuration.
        state: that the round begins with.
        task: of the round.
        peers: of the root.

    Attributes:
        own: link of the root.
        record: of the round, when it has ended.
        model: of the seconds of an update, by a probe of one group; None where there is none.
    """

    def __init__(
        self, program: Program, recipe: Recipe, state: State, task: ServedRound, peers: ServerPeers
    ) -> None:
        self._program, self._recipe, self._state = program, recipe, state
        self._task, self._peers = task, peers
        self._count = program.gradient_size
        self.own, inside = Pipe()
        impatient(self.own)
        self._inside = impatient(inside)
        self._links: dict[int, Connection] = {}
        self._is_closed = False
        self._error: BaseException | None = None
        # Of the server at work, of that the optimizer, and of the slowest gradient of each update.
        self._seconds = [0.0, 0.0, 0.0]
        self.record: Record | None = None
        self.model: GroupModel | None = None
        self._thread = threading.Thread(target=self._serve, name="parameter server", daemon=True)
        self._thread.start()

    def wait(self, tick: Tick) -> State:
        """The state at the end of the round.

        Raises:
            PeerLost: one of the trainers has ended.
        """
        while self._thread.is_alive():
            self._thread.join(_WAIT_SECONDS)
            tick()
        self.check()
        return self._program.save()

    def check(self) -> None:
        """Raise what has ended the server, if it was anything of its own."""
        if self._error is not None and not isinstance(self._error, PeerLost):
            raise self._error

    def close(self) -> None:
        """End, whatever is under way."""
        self._is_closed = True
        self._thread.join()
        for link in (self.own, self._inside):
            with suppress(OSError):
                link.close()

    # -- inside the thread -----------------------------------------------------------
    def _serve(self) -> None:
        try:
            self._identify()
            setting, probes = self._setting()
            self._train(setting, probes)
        except BaseException as error:
            self._error = error
            for link in (self._inside, *self._peers.links):  # so that nobody waits for an answer
                with suppress(OSError):
                    link.close()

    def _identify(self) -> None:
        """Learn the rank at the other end of each link."""
        for link in (self._inside, *self._peers.links):
            (rank,) = _RANK.unpack(self._received(link))
            self._links[rank] = link
        if sorted(self._links) != list(range(self._peers.size)):
            raise InvalidState(f"got the ranks {sorted(self._links)} of {self._peers.size} peers")

    def _setting(self) -> tuple[Setting | None, list[Probe]]:
        """Setting of the round, and the probes that it was chosen by; None for that of the configuration."""
        if self._task.groups is not None:
            return None, []
        asked = float(self._recipe.compile_params.optimizer.all_arguments()["momentum"])
        size = self._peers.size
        self._probe(Setting(1, asked))  # traces what is to be timed
        self._seconds = [0.0, 0.0, 0.0]
        self._probe(Setting(1, asked))
        computing = max(1, sum(map(bool, self._task.steps)))
        self.model = GroupModel.of_one_group(
            size, cores(), computing, self._task.probe_steps, *self._seconds
        )
        choice = updates.choose(self.model.saturating, asked)
        setting = next(choice)
        while True:
            try:
                setting = choice.send(self._probe(setting))
            except StopIteration as ended:
                return ended.value

    def _probe(self, setting: Setting) -> float:
        """The loss at the end of a few steps."""
        steps = self._task.probe_steps
        self._load(setting.momentum, self._rate(setting))
        _, reports = self._phase(setting.groups, [steps] * setting.groups, None, is_probe=True)
        self._seconds[2] += reports.computed
        return reports.total / reports.counted if reports.counted else float("inf")

    def _train(self, chosen: Setting | None, probes: list[Probe]) -> None:
        task = self._task
        groups, momentum, rate = task.groups or 1, task.momentum, task.rate
        if chosen is not None:
            groups, momentum, rate = chosen.groups, chosen.momentum, self._rate(chosen)
        steps = [one * task.passes for one in task.steps_of(groups)]
        order = None if task.order is None else updates.from_bytes(task.order, sum(steps))
        self._load(momentum, rate)
        started = time.monotonic()
        made, _ = self._phase(groups, steps, order, is_probe=False)
        of_rank = updates.groups_of(self._peers.size, groups)
        self.record = Record(
            groups=groups,
            momentum=momentum,
            rate=rate,
            probes=json.dumps(updates.described(probes)) if probes else "",
            staleness=[made.staleness[group] for group in of_rank],
            order=updates.to_bytes(made.order),
            seconds=time.monotonic() - started,
        )

    def _rate(self, setting: Setting) -> float:
        """The learning rate of a setting, as the optimizer has it."""
        return float(np.float32(float(self._state[LEARNING_RATE]) * setting.factor))

    def _load(self, momentum: float | None, rate: float | None) -> None:
        """Begin with the state of the round."""
        params = self._recipe.compile_params
        if momentum is not None:
            params = _with_momentum(params, momentum)
        self._program.prepare(params, self._recipe.fit_params)
        chosen = {} if rate is None else {LEARNING_RATE: np.asarray(rate, np.float32)}
        self._program.load({**self._state, **chosen})

    def _phase(
        self, groups: int, steps: Sequence[int], order: Sequence[int] | None, *, is_probe: bool
    ) -> tuple[Updates, _Reports]:
        """Make all updates of a part of the round."""
        size = self._peers.size
        made = Updates(updates.groups_of(size, groups), steps, order)
        reports = _Reports([0.0] * size, [0] * size, [0.0] * size)
        for link in self._links.values():
            self._peers.send(link, json.dumps({"groups": groups, "is_probe": is_probe}).encode())
        while not made.is_done:
            awaited = [rank for rank in self._links if made.awaits(rank)]
            ready = wait([self._links[rank] for rank in awaited], _WAIT_SECONDS)
            started = time.monotonic()
            for rank in awaited:
                if self._links[rank] in ready:
                    self._take(reports, rank, self._received(self._links[rank]), is_probe)
                    made.pushed(rank)
            while (group := made.next()) is not None:
                self._update(reports, made.ranks(group))
                made.applied(group)
                for rank in made.ranks(group):
                    self._peers.send(self._links[rank], b".")
            self._seconds[0] += time.monotonic() - started
            self._heed()
        return made, reports

    def _take(self, reports: _Reports, rank: int, data: bytes, is_probe: bool) -> None:
        rows, loss, seconds = _PUSH.unpack(data)
        reports.rows[rank] = rows
        if not is_probe:
            return
        reports.seconds[rank] = seconds if rows else 0.0
        if 2 * reports.pushes[rank] >= self._task.probe_steps:
            reports.counted += rows
            reports.total += rows * loss
        reports.pushes[rank] += 1

    def _update(self, reports: _Reports, ranks: Sequence[int]) -> None:
        """Apply the mean of the gradients of some ranks, and give them the weights."""
        reports.computed += max(reports.seconds[rank] for rank in ranks)
        rows = [reports.rows[rank] for rank in ranks]
        slots = [self._peers.slot(rank)[: self._count] for rank in ranks]
        if any(rows):  # of a probe, a group may have none
            with np.errstate(all="ignore"):  # of a probe, numbers may grow without bounds
                mean = mean_of(slots, rows, self._count).astype(np.float32)
            started = time.monotonic()
            weights = self._program.updated(mean)
            self._seconds[1] += time.monotonic() - started
        else:
            weights = self._program.weights()
        for slot in slots:
            slot[:] = weights

    def _received(self, link: Connection) -> bytes:
        while True:
            try:
                return link.recv_bytes()
            except BlockingIOError:
                self._heed()
            except (OSError, EOFError):
                raise PeerLost("a peer has ended") from None

    def _heed(self) -> None:
        if self._is_closed:
            raise PeerLost("the server was ended")


def _with_momentum(params: CompileParams, momentum: float) -> CompileParams:
    """Parameters whose optimizer has another momentum."""
    spec = params.optimizer
    arguments: Mapping[str, Any] = {**dict(spec.arguments), "momentum": momentum}
    return structs.replace(
        params, optimizer=structs.replace(spec, arguments=tuple(arguments.items()))
    )
