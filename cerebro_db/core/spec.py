"""A run and its configurations, parsed and checked once: whoever gets these asks for no defaults."""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from msgspec import field

from cerebro_db.configs.architectures.memory import ArchitectureFacts
from cerebro_db.configs.grids.outputs import (
    OutputSpec,
    output_names,
    outputs_of,
    with_all_metrics,
)
from cerebro_db.configs.grids.parameters import CompileParams, ConfigurationText, FitParams
from cerebro_db.core.strategies import Strategy
from cerebro_db.wire import Wire

if TYPE_CHECKING:
    from cerebro_db.configs.grids.grid import Grid

TRAINING, VALIDATION = "training", "validation"
EVERY_HOP, EVERY_EPOCH = "hop", "epoch"


@dataclass(frozen=True, order=True)
class Hop:
    """A configuration trains on a partition, as number ``position`` of its hops in an epoch.

    Attributes:
        group: hops that are made together with it, itself included, where its run has chosen that.
    """

    mst_key: int
    epoch: int
    position: int
    partition_key: int
    group: int = 1


@dataclass(frozen=True)
class Architecture:
    """A model of an architecture table.

    Attributes:
        id: fingerprint of the JSON.
        text: the JSON, checked.
        has_weights: whether model_weights are the start of training.
    """

    model_id: int
    id: str
    text: str
    facts: ArchitectureFacts
    has_weights: bool


Program = Hashable
"""What configurations with one compiled program have in common."""


def program_key(
    architecture: Architecture, params: CompileParams, fit: FitParams, jit: bool
) -> Program:
    """Key of the compiled program of a configuration, as far as the driver can tell."""
    penalties = (params.l1 is not None, params.l2 is not None, params.dropout)
    several = repr((params.losses, params.loss_weights))
    loss = (params.loss.name, repr(params.loss.arguments), several)
    weighted = fit.class_weight is not None
    optimizer = (params.optimizer.name, params.optimizer.schedule, params.optimizer.parts)
    layers = (architecture.id, params.freeze, params.dtype_policy)
    return (layers, optimizer, loss, penalties, weighted, fit.batch_size if jit else None)


@dataclass(frozen=True)
class Configuration:
    """A configuration, parsed, with what the plan makes of it.

    Attributes:
        goal: by which it is ranked, the same for all of a run.
        budget: epochs that it is trained for, unless it is promoted.
        cohort: configurations with the same number were added together, and are planned together;
            0 for those that the run began with, else the number of the decision.
        is_warm: whether it goes on from a state, of an earlier run or of another configuration.
    """

    mst_key: int
    architecture: Architecture
    compile_text: str
    fit_text: str
    compile_params: CompileParams
    fit_params: FitParams
    hop_seconds: float
    initial_seed: int
    jit: bool
    steps_per_call: int
    goal: str
    budget: int
    cohort: int = 0
    is_warm: bool = False

    @property
    def row(self) -> ConfigurationText:
        """Row of a table of configurations."""
        return ConfigurationText(self.architecture.model_id, self.compile_text, self.fit_text)

    @functools.cached_property
    def outputs(self) -> tuple[OutputSpec, ...]:
        """Loss, metrics and weight of each output of the model."""
        names = output_names(json.loads(self.architecture.text))
        return outputs_of(self.compile_params, names)

    @functools.cached_property
    def program(self) -> Program:
        """Equal for configurations that share a compiled program."""
        return program_key(self.architecture, self.compile_params, self.fit_params, self.jit)

    @property
    def monitored(self) -> CompileParams:
        """The compile parameters as callbacks know them, with the metrics of all outputs."""
        return with_all_metrics(self.compile_params, self.outputs)


class Space(Wire, frozen=True, dict=True):
    """The configurations that a search chooses from, as texts in the grammar of grids.

    Attributes:
        model_ids: of the architecture table.
        compile_params_grid, fit_params_grid: as for ``cerebro_generate_configs``.
        left_out: compile parameters that an architecture has no layers for, by its model_id.
    """

    model_ids: tuple[int, ...]
    compile_params_grid: str
    fit_params_grid: str
    left_out: dict[int, tuple[str, ...]] = field(default_factory=dict)

    @functools.cached_property
    def compile_grid(self) -> Grid:
        """The compile parameters, parsed."""
        from cerebro_db.configs.grids.grid import parse_compile_grid  # which needs NumPy

        return dataclasses.replace(
            parse_compile_grid(self.compile_params_grid), without=self.left_out
        )

    @functools.cached_property
    def fit_grid(self) -> Grid:
        """The fit parameters, parsed."""
        from cerebro_db.configs.grids.grid import parse_fit_grid

        return parse_fit_grid(self.fit_params_grid)


@dataclass(frozen=True)
class Workers:
    """The workers of a run.

    Attributes:
        count: how many.
        bound: whether each partition belongs to one of them, and others never read its rows.
        most_hops: of one partition that a task may have.
    """

    count: int = 1
    bound: bool = False
    most_hops: int = 1

    def serves(self, worker: int, partition_key: int) -> bool:
        """True if a worker, by its number, may have a partition.

        Those that have joined the run, with numbers from ``count`` on, have no partition of their own.
        """
        is_any = not self.bound or self.count < 1 or worker >= self.count
        return is_any or partition_key % self.count == worker


@dataclass(frozen=True)
class RunSpec:
    """Everything that the course of a run depends on.

    Attributes:
        epochs: budget of the configurations that the run begins with.
        frequency: epochs between measures.
        partitions: keys of the partitions of each data set.
        strategy: that makes its hops, with its parameters.
        durability: which states outlive a crash: those of every hop, or those at the end of an epoch.
        scans_wait: whether a scan waits for all configurations, as partitions do not fit into memory.
        is_open: whether decisions may change the set of configurations while the run goes on.
        measured: data sets on which configurations are scored; empty for all.
        workers: of this driver.
    """

    epochs: int
    seed: int
    frequency: int
    partitions: Mapping[str, tuple[int, ...]]
    strategy: Strategy
    durability: str = EVERY_HOP
    use_gpus: bool = False
    scans_wait: bool = False
    is_open: bool = False
    measured: tuple[str, ...] = ()
    workers: Workers = Workers()

    @property
    def scored(self) -> tuple[str, ...]:
        """The data sets on which configurations are scored."""
        return self.measured or tuple(self.partitions)

    @property
    def every_hop(self) -> bool:
        """True if all states outlive a crash."""
        return self.durability == EVERY_HOP

    @property
    def hops_an_epoch(self) -> int:
        """Number of hops of a configuration in an epoch."""
        return len(self.partitions[TRAINING]) * self.strategy.rounds

    @property
    def together(self) -> int:
        """Hops that begin with the same state, and leave one, in all rounds of the strategy."""
        return len(self.partitions[TRAINING]) if self.strategy.has_rounds else 1

    def round_size(self, hop: Hop) -> int:
        """Hops that begin with the same state as this one, and leave one with it."""
        return self.together if self.strategy.has_rounds else hop.group

    def is_joined(self, hop: Hop) -> bool:
        """True if a hop is made at the same time as the others of its round."""
        return self.strategy.is_side_by_side or hop.group > 1

    @property
    def measured_epochs(self) -> list[int]:
        """Epochs after which configurations are measured that are trained for all of them."""
        epochs = range(1, self.epochs + 1)
        return [one for one in epochs if one % self.frequency == 0 or one == self.epochs]

    def version(self, hop: Hop) -> int:
        """Hops that a configuration has done before this one."""
        return (hop.epoch - 1) * self.hops_an_epoch + hop.position

    def base(self, hop: Hop) -> int:
        """The version of the state that a hop begins with."""
        version = self.version(hop)
        return version - version % self.round_size(hop)

    def left(self, hop: Hop) -> int:
        """The version of the state that a hop leaves; where that is averaged, a negative number."""
        if self.strategy.averages:
            return -1 - self.version(hop)
        return self.base(hop) + self.round_size(hop)

    def round_of(self, hop: Hop) -> int:
        """The round that a hop belongs to, from 0, of those in which its partition is trained on."""
        return hop.position // self.together if self.strategy.has_rounds else 0

    def begins_epoch(self, hop: Hop) -> bool:
        """True if a hop begins with the state after the epoch before."""
        return self.base(hop) % self.hops_an_epoch == 0
