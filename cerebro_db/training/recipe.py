"""Recipe of a configuration: everything but its state that decides how it is trained."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

from cerebro_db.configs.frameworks import framework_of, output_names
from cerebro_db.configs.grids.outputs import OutputSpec, outputs_of
from cerebro_db.configs.grids.parameters import CompileParams, FitParams
from cerebro_db.training.scores.targets import TargetFacts


@dataclass(frozen=True)
class Recipe:
    """Recipe of a configuration.

    Attributes:
        architecture: the checked JSON of the model.
        architecture_id: its fingerprint.
        compile_params, fit_params: the configuration's parameters.
        targets: the stored targets.
        jit: whether the loop is compiled to machine code (XLA).
        steps_per_call: mini-batches of one call.
    """

    architecture: dict[str, Any]
    architecture_id: str
    compile_params: CompileParams
    fit_params: FitParams
    targets: TargetFacts
    jit: bool
    steps_per_call: int

    @functools.cached_property
    def backend(self) -> str:
        """The name of the framework that computes: that of the architecture."""
        return framework_of(self.architecture).name

    @functools.cached_property
    def outputs(self) -> tuple[OutputSpec, ...]:
        """Loss, metrics and weight of each output of the model."""
        return outputs_of(self.compile_params, output_names(self.architecture))

    @property
    def rows_per_call(self) -> int:
        """Rows of one call: whole batches."""
        return self.steps_per_call * self.fit_params.batch_size
