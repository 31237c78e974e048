"""Strategy: who makes the hops of a run, and all of a run that depends on this.

Each strategy is a class in ``decide/strategies/``, and an instance of it has the values of its
parameters. Everybody else asks for the traits and calls the methods that are declared here, and nobody
which strategy it is.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, ClassVar

from cerebro_db.configs.arguments import Argument

if TYPE_CHECKING:
    from cerebro_db.core.run_spec import RunSpec
    from cerebro_db.core.spec import Configuration, Hop
    from cerebro_db.core.state import RunState
    from cerebro_db.core.tasks import Task, WorkerView


# Bounds of speeds.
SLOWEST, FASTEST = 0.01, 100.0


@dataclass(frozen=True)
class Speeds:
    """Speeds of the machine, from which a run chooses the sizes of groups.

    Each is how many times as fast a step is as by the built-in figures; None where these are used.

    Attributes:
        convolution: of nets with convolutions.
        other: of all other nets.
        measured_hops: hops of earlier runs that were measured; 0 where the caller has given the speeds.
    """

    convolution: float | None = None
    other: float | None = None
    measured_hops: int = 0

    @property
    def are_known(self) -> bool:
        """True if any speed is not that of the built-in figures."""
        return self.convolution is not None or self.other is not None

    def of(self, has_convolution: bool) -> float:
        """The speed of nets with or without convolutions."""
        found = self.convolution if has_convolution else self.other
        return 1.0 if found is None else found


@dataclass(frozen=True)
class Asynchrony:
    """Asynchrony of the workers of a round, one of which holds the weights.

    Attributes:
        groups: synchronous inside; 0 for as many as there are workers, None where probes choose them.
        is_corrected: whether momentum is lowered by what the asynchrony brings.
        probe_steps: of each probe.
    """

    groups: int | None = 1
    is_corrected: bool = False
    probe_steps: int = 0

    @property
    def is_any(self) -> bool:
        """True if the order of updates is not always the same."""
        return self.groups != 1


@dataclass(frozen=True)
class Resources:
    """Resources of a run, from which its strategy makes choices before it begins.

    Attributes:
        cores: of the server.
        neighbours: the most partitions that are on one host.
        num_workers: that the caller wants; None for as many as are of use.
        is_spread: whether partitions lie on segments, which have processors of their own.
        has_network: whether trainers of several hosts may reach each other.
        speeds: measures the speeds of the machine; None where no choice may depend on them.
    """

    cores: int
    neighbours: int
    num_workers: int | None = None
    is_spread: bool = False
    has_network: bool = False
    speeds: Callable[[], Speeds] | None = None


def parameter(argument: Argument) -> Any:
    """Field of a strategy that is one of its ``strategy_params``."""
    return field(default=argument.default, metadata={"argument": argument})


@dataclass(frozen=True, kw_only=True)
class Strategy(ABC):
    """A strategy with its parameters, which are fields made by ``parameter``.

    Attributes:
        name: by which callers choose it.
        example: of ``strategy_params``; empty where there are none.
        deterministic_params: parameters with which results are always the same, for a hint.
        has_rounds: whether the hops of a round, one over each partition, begin with the same state.
        averages: whether the states that the hops of a round leave become one.
        is_side_by_side: whether the hops of a round are made at the same time by as many workers.
        has_weight_server: whether one trainer of a round holds the weights for all of them.
        chooses_groups: whether the plan tells how many workers train a configuration together, which share
            its batches then.
        drives_segments: whether one statement trains on all segments at the same time.
        moves_rows: whether a worker reads the rows of all partitions, wherever they are.
        takes_joining_workers: whether workers that join from elsewhere, and leave, may make hops.
        takes_folds: whether its hops may leave out rows of their partitions.
        measures_speed: whether its hops tell how fast the machine is.
    """

    name: ClassVar[str]
    example: ClassVar[str] = ""
    deterministic_params: ClassVar[str] = ""
    has_rounds: ClassVar[bool] = False
    averages: ClassVar[bool] = False
    is_side_by_side: ClassVar[bool] = False
    has_weight_server: ClassVar[bool] = False
    chooses_groups: ClassVar[bool] = False
    drives_segments: ClassVar[bool] = False
    moves_rows: ClassVar[bool] = False
    takes_joining_workers: ClassVar[bool] = False
    takes_folds: ClassVar[bool] = False
    measures_speed: ClassVar[bool] = False

    # -- parameters ------------------------------------------------------------------------------
    @classmethod
    def parameters(cls) -> tuple[Argument, ...]:
        """Arguments that ``strategy_params`` may have."""
        found = (one.metadata.get("argument") for one in fields(cls))
        return tuple(one for one in found if one is not None)

    @classmethod
    def hint(cls) -> str:
        """The call with parameters that are allowed."""
        if not cls.example:
            return f"leave strategy_params out: strategy := {cls.name!r} has none"
        return f"strategy := {cls.name!r}, strategy_params := {cls.example!r}"

    @property
    def text(self) -> str:
        """The parameters that differ from their defaults, as ``strategy_params``."""
        values = ((one.name, getattr(self, one.name), one.default) for one in self.parameters())
        return ", ".join(f"{name}={value!r}" for name, value, default in values if value != default)

    def check(self) -> None:
        """Refuse parameters that contradict each other.

        Raises:
            InvalidArgument: with what is allowed.
        """
        return

    @property
    def rounds(self) -> int:
        """Rounds of an epoch; each ends with one state."""
        return 1

    @property
    def resets(self) -> bool:
        """True if optimizers begin each round anew."""
        return False

    @property
    def bits(self) -> int:
        """Bits of each number of a gradient that is exchanged."""
        return 32

    @property
    def asynchrony(self) -> Asynchrony:
        """Asynchrony of the workers of a round."""
        return Asynchrony()

    @property
    def largest_group(self) -> int:
        """The most hops that are made together, where the plan chooses that."""
        return 1

    def is_pipelined(self, epoch: int) -> bool:
        """True if a step of an epoch goes on while the gradients of the one before are exchanged."""
        return False

    @classmethod
    def may_join_hops(cls) -> bool:
        """True if several workers may make the hops of a configuration at the same time."""
        return cls.is_side_by_side or cls.chooses_groups

    # -- workers ---------------------------------------------------------------------------------
    @abstractmethod
    def default_workers(
        self, partitions: int, configurations: int, cores: int, *, is_spread: bool
    ) -> int:
        """Workers that train most of the time, where the caller does not give a number.

        Args:
            partitions: of the training table.
            configurations: that are trained at the same time.
            cores: of the server.
            is_spread: whether partitions lie on segments, which have processors of their own.
        """

    @abstractmethod
    def most_workers(self, partitions: int, configurations: int, *, is_spread: bool) -> int:
        """More workers would have nothing to do."""

    def num_workers(
        self,
        wanted: int | None,
        partitions: int,
        configurations: int,
        cores: int,
        *,
        is_spread: bool,
    ) -> int:
        """Workers of a run: as many as the caller wants, or the default, as far as they are of use."""
        default = self.default_workers(partitions, configurations, cores, is_spread=is_spread)
        most = self.most_workers(partitions, configurations, is_spread=is_spread)
        return min(wanted or default, most)

    def workers_at_once(self, partitions: int, *, is_spread: bool) -> int:
        """Workers without which nothing can begin, as they must work at the same time."""
        return 1

    # -- a run -----------------------------------------------------------------------------------
    def check_configurations(
        self, configurations: Iterable[Configuration], table: str, partitions: int
    ) -> None:
        """Refuse configurations that cannot be trained like this.

        Args:
            configurations: that the run has, or is to have.
            table, partitions: that they are trained on.

        Raises:
            InvalidArgument: with what is allowed.
        """
        return

    def settled(
        self, spec: RunSpec, configurations: Sequence[Configuration], resources: Resources
    ) -> RunSpec:
        """The run with what this strategy chooses before it begins.

        Raises:
            InvalidArgument: parameters do not fit to the number of partitions.
        """
        return spec

    def regrouped(
        self, spec: RunSpec, configurations: Sequence[Configuration], largest: int
    ) -> Strategy:
        """Strategy before its run has begun, with groups of so many workers at most."""
        return self

    def notice(self, partitions: int) -> str | None:
        """Description of the run for its caller; None where its hops are those of a hopper."""
        return None

    # -- decisions, from the state of a run alone ------------------------------------------------
    @abstractmethod
    def plan(self, state: RunState) -> list[Hop]:
        """Hops that are to be planned now, before any of them is begun."""

    @abstractmethod
    def epoch(self, state: RunState, cohort: int, epoch: int) -> tuple[Hop, ...]:
        """The hops of an epoch of configurations that are planned together."""

    def reasons(self, state: RunState, hops: Iterable[Hop]) -> Mapping[tuple[int, int], str]:
        """Reasons of planned hops, by mst_key and epoch, where they are new.

        Args:
            state: before these hops are planned.
            hops: that are to be planned.
        """
        return {}

    @abstractmethod
    def next(self, state: RunState, worker: WorkerView, now: float) -> Task | None:
        """The next task of a worker; None where it has to wait.

        Args:
            state: of the run.
            worker: that is free.
            now: on the clock.
        """

    def shares(self, batch_size: int, workers: int) -> Sequence[int]:
        """Rows of the batch of each worker of a round that is made together."""
        return [batch_size] * workers


def rows_of_round(
    rows: int, most: int, batch_size: int, number: int, rounds: int
) -> tuple[int, int]:
    """First row of a round in a pass over a partition, and the one after its last.

    The batches of the largest partition are dealt to the rounds as evenly as can be; a smaller
    partition has nothing left for the last ones.

    Args:
        rows: of the partition.
        most: rows of the largest partition.
        batch_size: of the configuration.
        number: of the round, from 0.
        rounds: of an epoch.
    """
    batches = math.ceil(most / batch_size)
    first, last = number * batches // rounds, (number + 1) * batches // rounds
    return min(first * batch_size, rows), min(last * batch_size, rows)


def shares_of(batch_size: int, size: int) -> list[int]:
    """Rows of a batch for each of those who share it, as even as can be.

    Args:
        batch_size: rows of the batch, at least one for each.
        size: of the group.
    """
    least, more = divmod(batch_size, size)
    return [least + (place < more) for place in range(size)]
