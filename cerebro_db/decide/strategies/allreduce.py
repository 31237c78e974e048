"""Rounds that workers make together: all-reduce, its pipeline, and servers of weights.

A round begins when as many workers are free as it has hops. Whoever has joined waits for the others, so
that none does anything else before all are there: two rounds never wait for each other's workers. What
the trainers exchange, and whether one of them holds the weights for all, is a matter of the trainers.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import ClassVar

from cerebro_db.configs.arguments import choice, whole
from cerebro_db.configs.functions.callbacks import SETTING_RATES
from cerebro_db.core.spec import TRAINING, Configuration, Hop
from cerebro_db.core.state import RunState, Track
from cerebro_db.core.strategies import Asynchrony, parameter
from cerebro_db.core.tasks import Participate, Task, WorkerView
from cerebro_db.decide import dispatch
from cerebro_db.decide.strategies.hopper import Hopper
from cerebro_db.decide.strategies.rounds import Rounds, scales_loss
from cerebro_db.errors import InvalidArgument
from cerebro_db.training.peers.updates import implicit_momentum

_ALLOWED_BITS = (32, 16, 8)
_SYNCHRONOUS, _ASYNCHRONOUS = "synchronous", "asynchronous"
_CORRECTED, _KEPT = "corrected", "kept"
_PROBE_STEPS = 16
_OPTIMIZER = "SGD"
_KEEP = (
    "strategy_params := 'groups=N, momentum=kept' leaves optimizers as they are; with 'groups=1' there is "
    "nothing to be corrected"
)


class Joining(Hopper):
    """Workers join rounds that others have begun, before they do anything else."""

    takes_folds: ClassVar = False

    def next(self, state: RunState, worker: WorkerView, now: float) -> Task | None:
        """The share of a round that others have begun, else what a hopper does."""
        for hops in state.joinable:
            share = _share(state, worker, hops)
            if share is not None:
                return share
        return super().next(state, worker, now)


@dataclass(frozen=True, kw_only=True)
class AllReduce(Joining, Rounds):
    """All-reduce: a replica for each partition, whose trainers average their gradients at each step."""

    name: ClassVar = "allreduce"
    example: ClassVar = "rounds=4"
    is_side_by_side: ClassVar = True

    def default_workers(
        self, partitions: int, configurations: int, cores: int, *, is_spread: bool
    ) -> int:
        """Number of partitions, as no worker can do without the others."""
        return partitions

    def workers_at_once(self, partitions: int, *, is_spread: bool) -> int:
        """Number of partitions."""
        return partitions

    def notice(self, partitions: int) -> str | None:
        """Description of the run for its caller."""
        return (
            f"strategy {self.name}: {partitions} workers train a configuration together, a step takes "
            f"{partitions} batches, and the state is stored {self.how_often}"
        )

    def _training(self, state: RunState, worker: WorkerView, held: Collection[int]) -> Task | None:
        """The first share of a round, if there are workers for all of it."""
        critical = dispatch.critical_work(state)
        ready = [
            (round_priority(track, critical), hops)
            for mst_key, track in state.active.items()
            if mst_key not in held and (hops := whole_round(state, track))
        ]
        return begun(state, worker, min(ready)[1]) if ready else None


@dataclass(frozen=True, kw_only=True)
class Pipe(AllReduce):
    """All-reduce whose steps go on while the gradients of the step before are exchanged."""

    name: ClassVar = "pipe"
    example: ClassVar = "warm_up=2, bits=16"
    warm_up: int = parameter(whole("warm_up", 1, 0, high=1_000_000))
    bits: int = parameter(whole("bits", 32, None))

    def check(self) -> None:
        """Refuse bits that gradients cannot have."""
        if self.bits not in _ALLOWED_BITS:
            raise InvalidArgument(
                f"strategy_params of {self.name}: got bits={self.bits}; allowed: 32, 16 and 8"
            )

    def is_pipelined(self, epoch: int) -> bool:
        """True after the epochs of the warm-up."""
        return epoch > self.warm_up


class _WeightServer(AllReduce):
    """Rounds with a server: one trainer holds the weights for all of them."""

    has_weight_server: ClassVar = True

    def check_configurations(
        self, configurations: Iterable[Configuration], table: str, partitions: int
    ) -> None:
        """Refuse optimizers that the server, or its groups, cannot have.

        Raises:
            InvalidArgument: more groups than workers, or an optimizer whose momentum cannot be corrected.
        """
        groups = self.asynchrony.groups
        if groups is not None and groups > partitions:
            raise InvalidArgument(
                f"strategy_params of {self.name}: got groups={groups}; allowed: 1 to {partitions}, as "
                f"{table} has {partitions} partitions, each of which has a worker",
                hint=f"pack the source with num_partitions := {groups}, or choose fewer groups",
            )
        for one in configurations:
            if scales_loss(one):
                raise InvalidArgument(
                    f"configuration {one.mst_key}: got an optimizer that scales its loss, as the model computes "
                    f"in float16; allowed with strategy := {self.name!r}: others, as workers would scale "
                    "theirs apart from the server",
                    hint="dtype_policy='mixed_bfloat16' needs no scale",
                )
            if self.asynchrony.is_corrected and groups != 1:
                _check_corrected(one, groups)

    def notice(self, partitions: int) -> str | None:
        """Description of the run for its caller."""
        groups = self.asynchrony.groups
        if not self.asynchrony.is_any:
            return super().notice(partitions)
        how = f"in {groups} groups" if groups else "each for itself"
        how = "in as many groups as probes choose" if groups is None else how
        return (
            f"strategy {self.name}: {partitions} workers train a configuration, {how}, and the state is stored "
            f"{self.how_often}; the order of updates is recorded"
        )


@dataclass(frozen=True, kw_only=True)
class ParameterServer(_WeightServer):
    """Workers that send gradients to a server of weights, and wait for each other or do not."""

    name: ClassVar = "parameter_server"
    example: ClassVar = "rounds=4, mode=asynchronous"
    deterministic_params: ClassVar = f"mode={_SYNCHRONOUS}"
    mode: str = parameter(choice("mode", _SYNCHRONOUS, _SYNCHRONOUS, _ASYNCHRONOUS))

    @property
    def asynchrony(self) -> Asynchrony:
        """Asynchrony: one group, or as many as there are workers."""
        return Asynchrony(groups=0 if self.mode == _ASYNCHRONOUS else 1)


@dataclass(frozen=True, kw_only=True)
class Groups(_WeightServer):
    """Groups of workers, synchronous inside, that do not wait for each other."""

    name: ClassVar = "groups"
    example: ClassVar = "groups=2, momentum=kept"
    deterministic_params: ClassVar = "groups=1"
    groups: int | None = parameter(whole("groups", None, 1, high=100_000))
    momentum: str = parameter(choice("momentum", _CORRECTED, _CORRECTED, _KEPT))
    probe_steps: int = parameter(whole("probe_steps", _PROBE_STEPS, 2, high=10_000))

    def check(self) -> None:
        """Refuse a parameter of probes beside a number of groups, or the other way round."""
        if self.groups is None and self.momentum == _KEPT:
            raise InvalidArgument(
                f"strategy_params of {self.name}: got momentum={_KEPT} without groups; allowed: with a number of "
                "groups, as otherwise probes choose both"
            )
        if self.groups is not None and self.probe_steps != _PROBE_STEPS:
            raise InvalidArgument(
                f"strategy_params of {self.name}: got probe_steps beside groups={self.groups}; allowed: one of "
                "them, as nothing is probed where the number of groups is given"
            )

    @property
    def asynchrony(self) -> Asynchrony:
        """Asynchrony: one group, or as many as there are workers."""
        probe_steps = self.probe_steps if self.groups is None else 0
        return Asynchrony(self.groups, self.momentum == _CORRECTED, probe_steps)


RoundPriority = tuple[bool, int, float, int]


def round_priority(track: Track, critical: float) -> RoundPriority:
    """Priority of rounds and hops: what is critical, the lower epoch, the most work left."""
    work = track.work
    return work < critical, track.waiting[0].epoch, -work, track.configuration.mst_key


def whole_round(state: RunState, track: Track) -> tuple[Hop, ...]:
    """The hops of a round that no worker has begun; empty where a configuration has no such round."""
    if not track.waiting or not state.spec.is_joined(track.waiting[0]):
        return ()
    ready = tuple(sorted(state.ready(track)))
    return ready if len(ready) == state.spec.round_size(track.waiting[0]) else ()


def begun(state: RunState, worker: WorkerView, hops: tuple[Hop, ...]) -> Participate | None:
    """The first share of a round, where workers are free for all of it; None where some are not."""
    workers = state.spec.workers
    free = [number for number in range(workers.count) if number not in state.tasks]
    if workers.bound:
        owners = {hop.partition_key % workers.count for hop in hops}
        is_free = len(owners) == len(hops) and owners <= set(free)
    else:
        is_free = len(free) >= len(hops)
    return _share(state, worker, hops) if is_free else None


def _share(state: RunState, worker: WorkerView, hops: tuple[Hop, ...]) -> Participate | None:
    """Part of a round for a worker: a hop that nobody has, over a partition that it has in memory if there is one.

    None where all of them are over partitions of other workers.
    """
    waiting, serves = state.tracks[hops[0].mst_key].waiting, state.spec.workers.serves
    left = [hop for hop in hops if hop in waiting]
    own = [hop for hop in left if serves(worker.number, hop.partition_key)]
    if not own:
        return None
    taken = next((hop for hop in own if worker.keeps(TRAINING, hop.partition_key)), own[0])
    return Participate(hops, hops.index(taken), is_root=len(left) == 1)


def _check_corrected(one: Configuration, groups: int | None) -> None:
    """Refuse an optimizer whose momentum cannot make up for what groups bring."""
    optimizer = one.compile_params.optimizer
    arguments = {} if optimizer.parts else optimizer.all_arguments()
    what = f"configuration {one.mst_key}: got {optimizer.name}"
    if optimizer.name != _OPTIMIZER or arguments["nesterov"]:
        nesterov = " with nesterov=True" if optimizer.name == _OPTIMIZER else ""
        raise InvalidArgument(
            f"{what}{nesterov}; allowed with groups whose momentum is corrected: {_OPTIMIZER} with momentum",
            hint=_KEEP,
        )
    momentum = float(arguments["momentum"])
    # What the optimizer is given then must be above -1.
    least = -1.0 if groups is None else implicit_momentum(groups) - 1
    if momentum <= least or not momentum:
        brings = "" if groups is None else f", as {groups} groups bring {least + 1:g}"
        raise InvalidArgument(
            f"{what} with momentum={momentum:g}; allowed: above {least:g} and not 0{brings}",
            hint=_KEEP,
        )
    if groups is not None:
        return
    if optimizer.schedule is not None:
        raise InvalidArgument(
            f"{what} with a schedule of its learning rate; allowed where probes choose the rate: a number",
            hint=_KEEP,
        )
    for callback in one.fit_params.callbacks:
        if callback.name in SETTING_RATES:
            raise InvalidArgument(
                f"configuration {one.mst_key}: got the callback {callback.name}, which sets the learning rate; "
                "allowed where probes choose that: others",
                hint=_KEEP,
            )
