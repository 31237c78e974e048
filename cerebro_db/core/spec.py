"""Configurations, their hops and the space that they are from, parsed and checked once: whoever gets these asks for no defaults."""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Hashable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from msgspec import field

from cerebro_db.configs.architectures.memory import ArchitectureFacts
from cerebro_db.configs.frameworks import framework_in
from cerebro_db.configs.grids.outputs import OutputSpec, outputs_of, with_all_metrics
from cerebro_db.configs.grids.parameters import CompileParams, ConfigurationText, FitParams
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
    rows = (fit.class_weight is not None, fit.mixup is not None)
    optimizer = (params.optimizer.name, params.optimizer.schedule, params.optimizer.parts)
    layers = (architecture.id, params.freeze, params.dtype_policy, params.loss_per_member)
    size = fit.batch_size if jit else None
    return (layers, optimizer, loss, penalties, rows, size, params.param_groups)


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
        text = self.architecture.text
        names = framework_in(text).output_names(json.loads(text))
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
