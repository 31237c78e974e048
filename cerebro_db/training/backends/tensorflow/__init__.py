"""TensorFlow with Keras as a backend; it is imported by the first call that needs it."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from cerebro_db.configs.architectures.limits import ArchitectureLimits
from cerebro_db.configs.architectures.memory import ArchitectureFacts
from cerebro_db.configs.functions.expressions import Expression
from cerebro_db.configs.functions.optimizers import ScheduleSpec
from cerebro_db.configs.names import Format
from cerebro_db.training import backends
from cerebro_db.training.backends import ModelSize, Tick
from cerebro_db.training.backends.tensorflow import environment
from cerebro_db.training.recipe import Recipe
from cerebro_db.training.scores.sums import Partial
from cerebro_db.training.state import State


class TensorFlowBackend:
    """TensorFlow with Keras."""

    name = "tensorflow"

    def preload(self) -> None:
        environment.import_tensorflow()
        # What trainers need in any run; files and nets with names are rare.
        from cerebro_db.training.backends.tensorflow import program, scoring, sizes  # noqa: F401

    def set_environment(self) -> None:
        environment.set_for_import()

    def refuse_imported(self) -> None:
        environment.refuse_imported()

    def set_up(self, threads: int, use_gpus: bool) -> dict[str, Any]:
        return environment.set_up(threads, use_gpus)

    def versions(self) -> dict[str, str]:
        return environment.versions()

    def report_devices(self) -> None:
        environment.report_devices()

    def check_size(
        self, config: Mapping[str, Any], limits: ArchitectureLimits, memory_mb: int | None
    ) -> ModelSize:
        from cerebro_db.training.backends.tensorflow.sizes import check_size

        return check_size(config, limits, memory_mb)

    def facts(
        self,
        config: Mapping[str, Any],
        limits: ArchitectureLimits,
        memory_mb: int | None,
        weights: bytes | None,
    ) -> ArchitectureFacts:
        from cerebro_db.training.backends.tensorflow import models

        size = self.check_size(config, limits, memory_mb)
        model = models.build(config, seed=0)
        if weights is not None:
            models.set_weights(model, weights)
        return replace(models.facts_of(model), **size._asdict())

    def net(self, name: str, shape: Sequence[int], units: int, activation: str) -> str:
        from cerebro_db.training.backends.tensorflow.nets import net

        return net(name, shape, units, activation)

    def read_file(
        self, data: bytes, limits: ArchitectureLimits, memory_mb: int | None, tick: Tick
    ) -> tuple[str, bytes]:
        from cerebro_db.training.backends.tensorflow import keras_file

        return keras_file.read(data, limits, memory_mb, tick)

    def export(
        self,
        recipe: Recipe,
        state: State,
        wanted: Format,
        documents: Mapping[str, str],
        tick: Tick,
    ) -> bytes:
        from cerebro_db.training.backends.tensorflow.export import export

        return export(recipe, state, wanted, documents, tick)

    def program_key(self, recipe: Recipe) -> Hashable:
        from cerebro_db.training.backends.tensorflow.program import Program

        return Program.key(recipe)

    def program(self, recipe: Recipe) -> backends.Program:
        from cerebro_db.training.backends.tensorflow.program import Program

        return Program(recipe)

    def scorer_key(self, recipe: Recipe) -> Hashable:
        from cerebro_db.training.backends.tensorflow.scoring import Scorer

        return Scorer.key(recipe)

    def scorer(self, recipe: Recipe) -> backends.Scorer:
        from cerebro_db.training.backends.tensorflow.scoring import Scorer

        return Scorer(recipe)

    def metrics(self, recipe: Recipe, total: Partial) -> list[float]:
        from cerebro_db.training.backends.tensorflow.scoring import results_of

        return results_of(recipe, total)

    def scheduled_rate(self, spec: ScheduleSpec, step: int) -> float:
        from cerebro_db.training.backends.tensorflow.models import make_schedule

        return float(make_schedule(spec)(step))

    def function(self, expression: Expression, name: str) -> Callable[..., Any]:
        from cerebro_db.training.backends.tensorflow.expressions import function_from

        return function_from(expression, name)

    def event_file(self, step: int, values: Mapping[str, float]) -> bytes:
        from cerebro_db.training.backends.tensorflow.event_file import event_file

        return event_file(step, values)


BACKEND = TensorFlowBackend()
