"""Backends: the frameworks that compute, each a package here that has a ``Backend`` named ``BACKEND``.

Each has the name of its module in ``configs/frameworks``, which knows its architectures and configurations.

All else in ``training`` knows rows, states and recipes, and computes by these protocols. A backend compiles a program
for configurations of one kind: it takes the scalars of one of them (``prepare``), a state (``load``), and the rows of
a call (``train``), and gives back the next state (``save``). A scorer does the same for loss, metrics and predictions.

A framework is imported by the first call of its backend that needs it, never with this module: keepers fork before
they compute, and drivers do not compute. ``tests/training/backends`` has the contract that all backends keep.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from cerebro_db.configs.architectures.limits import ArchitectureLimits
from cerebro_db.configs.architectures.memory import ArchitectureFacts
from cerebro_db.configs.functions.expressions import Expression
from cerebro_db.configs.functions.optimizers import ScheduleSpec
from cerebro_db.configs.grids.parameters import CompileParams, FitParams
from cerebro_db.configs.names import Format

if TYPE_CHECKING:  # drivers name backends, and import no arrays
    import numpy as np

    from cerebro_db.training.buffers import Shapes
    from cerebro_db.training.mixing import Partners
    from cerebro_db.training.recipe import Recipe
    from cerebro_db.training.scores.sums import Partial
    from cerebro_db.training.state import State

Tick = Callable[[], None]


class ModelSize(NamedTuple):
    """Memory of a model and of a forward pass in training.

    Attributes:
        parameters: number of weights, trainable or not.
        row_bytes: of all tensors, for each row of a batch.
        largest_bytes: of the largest one of them, for each row.
        fixed_bytes: of tensors that do not grow with the batch.
    """

    parameters: int
    row_bytes: int
    largest_bytes: int
    fixed_bytes: int


class Program(Protocol):
    """Compiled training loop for configurations of one kind."""

    @property
    def gradient_size(self) -> int:
        """Numbers of all gradients; one, a zero, where nothing trains."""

    @property
    def trained(self) -> frozenset[str]:
        """The names, in a state, of the weights that are trained."""

    @property
    def untrained(self) -> Mapping[str, int]:
        """The floats of the model that no gradient changes, such as averages of batches: name and size."""

    def prepare(self, params: CompileParams, fit: FitParams) -> None:
        """Take the scalars of a configuration."""

    def initial_state(self, recipe: Recipe, seed: int, weights: bytes | None) -> State:
        """The state before the first hop: from the seed, or from given weights, float32 in the model's order."""

    def taken_over(self, state: State, recipe: Recipe) -> State:
        """The state of an earlier run as a configuration starts from it, with its own learning rate.

        Where the optimizer is another one, that begins anew, and the model goes on.
        """

    def with_new_optimizer(self, state: State, recipe: Recipe) -> State:
        """The state with an optimizer that begins anew, but for its learning rate and what schedules count."""

    def load(self, state: State) -> None:
        """Take over a state.

        Raises:
            InvalidState: names, shapes or dtypes are not those of the program.
        """

    def save(self) -> State:
        """The state as it is now."""

    def check_ids(self, features: np.ndarray) -> None:
        """Refuse ids beyond an embedding.

        Raises:
            IdsBeyond: with the first row that has one.
        """

    def train(
        self, features: np.ndarray, targets: np.ndarray, partners: Partners | None = None
    ) -> float:
        """Train on rows in their order, batch by batch.

        Args:
            features: ``float32[rows, ...]``; rows of one call at most.
            targets: ``int32[rows]`` ids or ``float32[rows, ...]``, or records with weights.
            partners: of rows that are mixed, where the fit parameters say so.

        Returns:
            The sum over the rows of the loss of their batch.
        """

    def gradients(self, features: np.ndarray, targets: np.ndarray) -> tuple[float, np.ndarray]:
        """The loss of a batch, and its gradients one after another, ``float32[gradient_size]``."""

    def apply(self, gradients: np.ndarray) -> None:
        """Take a step of the optimizer by gradients that lie one after another."""

    def updated(self, gradients: np.ndarray) -> np.ndarray:
        """Apply gradients and return the flat weights."""

    def weights(self) -> np.ndarray:
        """The weights that are trained, one after another: ``float32[gradient_size]``."""

    def take(self, weights: np.ndarray) -> None:
        """Take over weights that are trained."""


class Scorer(Protocol):
    """Compiled scoring of configurations that share architecture, loss and metrics."""

    @property
    def units(self) -> tuple[int, ...]:
        """Last dimension of each output of the model."""

    @property
    def shapes(self) -> Shapes:
        """The shape of a row of each input."""

    @property
    def row(self) -> tuple[int, ...]:
        """The shape of a row as a worker holds it: of several inputs, their numbers side by side."""

    def load(self, state: State, params: CompileParams) -> None:
        """Take the model's part of a state and the strengths of the penalties."""

    def set_weights(self, weights: bytes) -> None:
        """Take weights as ``model_weights`` has them: float32, in the model's order."""

    def measure(self, features: np.ndarray, *targets: np.ndarray) -> Partial:
        """Score the rows of one buffer with what is loaded; the targets of each output.

        Raises:
            InvalidData: an id is beyond an embedding.
        """

    def predict(self, features: np.ndarray) -> list[np.ndarray]:
        """The model's outputs, each ``float32[rows, ...]``.

        Raises:
            InvalidData: an id is beyond an embedding.
        """

    def predict_row(self, features: np.ndarray) -> list[np.ndarray]:
        """The outputs for one row, ``float32[1, ...]``, without the work that many rows share."""

    def check_training(self, recipe: Recipe) -> None:
        """Refuse a configuration that cannot be trained, such as one whose patterns fit no weight."""


class Backend(Protocol):
    """A framework that computes."""

    name: str

    # -- the process ------------------------------------------------------------------
    def preload(self) -> None:
        """Import all that computing needs, for processes that are forked from this one; compute nothing."""

    def set_environment(self) -> None:
        """Set the environment variables that the framework reads when it is imported."""

    def refuse_imported(self) -> None:
        """Refuse a framework that was imported before its environment was set.

        Raises:
            RunFailed: it was: it may compute other bits.
        """

    def set_up(self, threads: int, use_gpus: bool) -> dict[str, Any]:
        """Import the framework and set it up; what belongs in a run's manifest.

        Raises:
            RunFailed: GPUs are wanted and there are none.
        """

    def versions(self) -> dict[str, str]:
        """Versions of the libraries that compute."""

    def report_devices(self) -> None:
        """Write the GPUs that the framework sees to standard output, as a JSON list of lines."""

    # -- architectures ------------------------------------------------------------------
    def check_size(
        self, config: Mapping[str, Any], limits: ArchitectureLimits, memory_mb: int | None
    ) -> ModelSize:
        """Measure a checked architecture without taking memory for it, and refuse one that is too large.

        Raises:
            InvalidArchitecture: it is beyond the limits, or the framework refuses it.
            InvalidArgument: it may need more than ``memory_mb``; None for any.
        """

    def facts(
        self,
        config: Mapping[str, Any],
        limits: ArchitectureLimits,
        memory_mb: int | None,
        weights: bytes | None,
    ) -> ArchitectureFacts:
        """Build a model that ``check_size`` accepts; its size, work and shapes.

        Raises:
            InvalidState: the weights are not those of the architecture.
        """

    def net(self, name: str, shape: Sequence[int], units: int, activation: str) -> str:
        """The JSON of a net that has a name, for rows of a shape, with so many outputs."""

    def read_file(
        self, data: bytes, limits: ArchitectureLimits, memory_mb: int | None, tick: Tick
    ) -> tuple[str, bytes]:
        """Architecture and weights of a model in the framework's own file, which is read as data."""

    def export(
        self,
        recipe: Recipe,
        state: State,
        wanted: Format,
        documents: Mapping[str, str],
        tick: Tick,
    ) -> bytes:
        """A file of a model.

        Args:
            recipe, state: of the model.
            wanted: the format.
            documents: JSON that goes with raw arrays, by name.
            tick: called between the steps.

        Raises:
            MissingLibrary: a package that the format needs is not installed.
            InvalidData: the format cannot hold the model.
        """

    # -- computing ------------------------------------------------------------------------
    def program_key(self, recipe: Recipe) -> Hashable:
        """Configurations with equal keys share a program."""

    def program(self, recipe: Recipe) -> Program:
        """A program for configurations like this one."""

    def scorer_key(self, recipe: Recipe) -> Hashable:
        """Configurations with equal keys share a scorer."""

    def scorer(self, recipe: Recipe) -> Scorer:
        """A scorer for configurations like this one."""

    def metrics(self, recipe: Recipe, total: Partial) -> list[float]:
        """The metrics of all outputs, from sums over all rows."""

    def scheduled_rate(self, spec: ScheduleSpec, step: int) -> float:
        """The learning rate of a schedule at a step, from 0."""

    def function(self, expression: Expression, name: str) -> Callable[..., Any]:
        """A function of tensors that computes an expression."""

    def event_file(self, step: int, values: Mapping[str, float]) -> bytes:
        """A file for TensorBoard with the values of one step, by name."""


@functools.cache
def backend(name: str) -> Backend:
    """The backend of a framework."""
    found: Backend = importlib.import_module(f"{__name__}.{name}").BACKEND
    return found
