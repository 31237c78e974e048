"""Auto: hops of a hopper, and rounds that groups of workers make together, as the plan has chosen."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from msgspec import structs

from cerebro_db.configs.arguments import number, whole
from cerebro_db.core.run_spec import RunSpec
from cerebro_db.core.spec import TRAINING, Configuration, Hop
from cerebro_db.core.state import RunState, Track
from cerebro_db.core.strategies import (
    FASTEST,
    SLOWEST,
    Resources,
    Speeds,
    Strategy,
    parameter,
    shares_of,
)
from cerebro_db.core.tasks import Task, Train, WorkerView
from cerebro_db.decide import dispatch, grouping
from cerebro_db.decide.plan import epoch_of_configuration, plan_groups
from cerebro_db.decide.strategies.allreduce import Joining, begun, round_priority, whole_round
from cerebro_db.errors import InvalidArgument

_MOST_PROCESSORS = 100_000


@dataclass(frozen=True, kw_only=True)
class Auto(Joining):
    """The sizes of groups are those of the planned hops: one is a hop like any other.

    Where a round comes first and too few workers are free, those that are wait for the others, which
    have one task each at most; else single hops could keep it from ever beginning.

    Parameters that the caller has left out are chosen before the run begins, and recorded with it.

    Attributes:
        processors: trainers that compute at the same time.
        group: the most workers that train a configuration together.
        neighbours: partitions of one host, where those of a group may be on several.
        speed, convolution_speed, measured_hops: see ``Speeds``; plans do not depend on them.
    """

    name: ClassVar = "auto"
    example: ClassVar = "processors=4, group=2, convolution_speed=2.5"
    chooses_groups: ClassVar = True
    takes_joining_workers: ClassVar = False
    processors: int | None = parameter(whole("processors", None, 1, high=_MOST_PROCESSORS))
    group: int | None = parameter(whole("group", None, 1, high=_MOST_PROCESSORS))
    neighbours: int | None = parameter(whole("neighbours", None, 1, high=_MOST_PROCESSORS))
    speed: float | None = parameter(number("speed", None, SLOWEST, high=FASTEST))
    convolution_speed: float | None = parameter(
        number("convolution_speed", None, SLOWEST, high=FASTEST)
    )
    measured_hops: int = parameter(whole("measured_hops", 0, 0, high=1_000_000))

    def check(self) -> None:
        """Refuse measured hops without a speed."""
        if self.measured_hops and not self.speeds.are_known:
            raise InvalidArgument(
                f"strategy_params of {self.name}: got measured_hops={self.measured_hops} without a speed; allowed: "
                "beside speed or convolution_speed, as cerebro.runs shows them of a run whose speeds were measured"
            )

    @property
    def speeds(self) -> Speeds:
        """Speeds of the machine."""
        return Speeds(self.convolution_speed, self.speed, self.measured_hops)

    @property
    def largest_group(self) -> int:
        """The most hops that are made together; 1 before that is chosen."""
        return self.group or 1

    # -- workers ---------------------------------------------------------------------------------
    def default_workers(
        self, partitions: int, configurations: int, cores: int, *, is_spread: bool
    ) -> int:
        """Workers of a hopper; with groups a worker for each processor, or for each segment."""
        if self.largest_group == 1:
            return super().default_workers(partitions, configurations, cores, is_spread=is_spread)
        busy = min(self.processors or 1, partitions)
        return partitions if is_spread else max(self.largest_group, busy)

    def most_workers(self, partitions: int, configurations: int, *, is_spread: bool) -> int:
        """Workers of a hopper; with groups as many as train together, or one for each configuration."""
        if self.largest_group == 1:
            return super().most_workers(partitions, configurations, is_spread=is_spread)
        busy = min(self.processors or 1, partitions)
        return partitions if is_spread else max(self.largest_group, busy, configurations)

    def workers_at_once(self, partitions: int, *, is_spread: bool) -> int:
        """Size of the largest group, whatever segments its partitions are on."""
        return partitions if is_spread and self.largest_group > 1 else self.largest_group

    def shares(self, batch_size: int, workers: int) -> Sequence[int]:
        """A batch is shared by those of a group."""
        return shares_of(batch_size, workers)

    # -- choices before the run begins -----------------------------------------------------------
    def settled(
        self, spec: RunSpec, configurations: Sequence[Configuration], resources: Resources
    ) -> RunSpec:
        """The run with processors, speeds and the largest group that it may come to, and workers for it.

        Where no group is of any use the run is that of a hopper.
        """
        partitions = len(spec.partitions[TRAINING])
        self._check_partitions(partitions)
        chosen = self._chosen(spec, configurations, resources, partitions)
        workers = chosen.num_workers(
            resources.num_workers, partitions, len(configurations), resources.cores,
            is_spread=resources.is_spread,
        )  # fmt: skip
        return structs.replace(
            spec, strategy=chosen, workers=structs.replace(spec.workers, count=workers)
        )

    def _check_partitions(self, partitions: int) -> None:
        """Refuse groups of more than all partitions."""
        for name, given in (("group", self.group), ("neighbours", self.neighbours)):
            if given is not None and given > partitions:
                raise InvalidArgument(
                    f"strategy_params: got {name}={given}; allowed: 1 to {partitions}, the number of partitions"
                )

    def _chosen(
        self,
        spec: RunSpec,
        configurations: Sequence[Configuration],
        resources: Resources,
        partitions: int,
    ) -> Auto:
        """Strategy with all of its choices."""
        is_one_host, wanted = resources.neighbours == partitions, resources.num_workers
        reachable = partitions if is_one_host or resources.has_network else 1
        measured = self
        if reachable > 1 and not spec.use_gpus and not self.speeds.are_known and resources.speeds:
            measured = self.with_speeds(resources.speeds())
        if spec.use_gpus or (resources.is_spread and wanted not in (None, partitions)):
            reachable = 1
        neighbours = self.neighbours or (partitions if is_one_host else resources.neighbours)
        cores = min(resources.cores, neighbours)  # of one host, all of which are alike
        chosen = replace(
            measured,
            processors=self.processors or max(1, cores * partitions // neighbours),
            neighbours=None if neighbours == partitions else neighbours,
            group=min(reachable, self.group or partitions, wanted or partitions),
        )
        largest = grouping.largest_of(chosen.rule(spec), configurations)
        return replace(chosen, group=largest, neighbours=chosen.neighbours if largest > 1 else None)

    def with_speeds(self, speeds: Speeds) -> Auto:
        """Strategy with other speeds of the machine."""
        return replace(
            self,
            speed=speeds.other,
            convolution_speed=speeds.convolution,
            measured_hops=speeds.measured_hops,
        )

    def regrouped(
        self, spec: RunSpec, configurations: Sequence[Configuration], largest: int
    ) -> Strategy:
        """Strategy before its run has begun, with groups of so many workers at most."""
        rule = replace(self.rule(spec), largest=largest)
        return replace(self, group=grouping.largest_of(rule, configurations))

    def rule(self, spec: RunSpec) -> grouping.Rule:
        """Everything beside the configurations that its choices follow from."""
        return grouping.Rule(
            partitions=len(spec.partitions[TRAINING]),
            processors=self.processors or 1,
            largest=self.largest_group,
            epochs=spec.epochs,
            neighbours=self.neighbours or 0,
            speeds=self.speeds,
        )

    # -- decisions -------------------------------------------------------------------------------
    def plan(self, state: RunState) -> list[Hop]:
        """Plan as a hopper; with groups, each configuration as far as the sizes of its groups are known."""
        if self.largest_group == 1:
            return super().plan(state)
        choices = grouping.Choices(state, self.rule(state.spec))
        behind = [state.tracks[key] for key in sorted(state.behind)]
        return [hop for track in behind for hop in _planned(state, track, choices)]

    def reasons(self, state: RunState, hops: Iterable[Hop]) -> Mapping[tuple[int, int], str]:
        """Reasons of the sizes of groups."""
        return grouping.explained(state, hops, self.rule(state.spec))

    def _training(self, state: RunState, worker: WorkerView, held: Collection[int]) -> Task | None:
        """Single hops, or the first share of a round, whatever comes first."""
        first_alone = dispatch.next_alone(state, worker)
        if first_alone is not None:
            return Train((first_alone,))
        critical = dispatch.critical_work(state)
        rounds = [
            (round_priority(track, critical), hops)
            for mst_key, track in state.active.items()
            if mst_key not in held and (hops := whole_round(state, track))
        ]
        alone = dispatch.next_hops(state, worker, held)
        if not rounds:
            return Train(alone) if alone else None
        first, hops = min(rounds)
        if alone and round_priority(state.tracks[alone[0].mst_key], critical) < first:
            return Train(alone)
        return begun(state, worker, hops)


def _planned(state: RunState, track: Track, choices: grouping.Choices) -> list[Hop]:
    """Hops up to the epoch after the present one, as far as it is known how they are made."""
    last = min(track.budget, track.done // state.spec.hops_an_epoch + 2)
    hops: list[Hop] = []
    for epoch in range(track.planned + 1, last + 1):
        size = choices.size(track, epoch)
        if size is None:
            break
        hops += _of_size(state, track, epoch, size)
    return hops


def _of_size(state: RunState, track: Track, epoch: int, size: int) -> Sequence[Hop]:
    """The hops of an epoch of a configuration: those of a hopper, or of groups."""
    mst_key, partitions = track.configuration.mst_key, state.spec.partitions[TRAINING]
    if size == 1:
        return epoch_of_configuration(state, mst_key, epoch)
    number = state.cohorts[track.configuration.cohort].index(mst_key)
    return plan_groups(mst_key, number, partitions, size, state.spec.seed, epoch)
