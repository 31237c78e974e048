"""PyTorch as a backend; it is imported by the first call that needs it."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

from cerebro_db.configs.architectures.limits import ArchitectureLimits
from cerebro_db.configs.architectures.memory import ArchitectureFacts
from cerebro_db.configs.functions.expressions import Expression
from cerebro_db.configs.functions.optimizers import ScheduleSpec
from cerebro_db.configs.names import Format
from cerebro_db.errors import InvalidArgument
from cerebro_db.training import backends
from cerebro_db.training.backends import ModelSize, Tick
from cerebro_db.training.backends.torch import environment
from cerebro_db.training.recipe import Recipe
from cerebro_db.training.scores.sums import Partial
from cerebro_db.training.state import State

NAME = "torch"


class TorchBackend:
    """PyTorch, for programs of ``torch.export``."""

    name = NAME

    def preload(self) -> None:
        environment.import_torch()
        from cerebro_db.training.backends.torch import program, scoring, sizes  # noqa: F401

    def set_environment(self) -> None:
        environment.set_for_import()

    def refuse_imported(self) -> None:
        """Refuse nothing: what PyTorch computes with is set after it is imported."""

    def set_up(self, threads: int, use_gpus: bool) -> dict[str, Any]:
        return environment.set_up(threads, use_gpus)

    def versions(self) -> dict[str, str]:
        return environment.versions()

    def report_devices(self) -> None:
        environment.report_devices()

    def check_size(
        self, config: Mapping[str, Any], limits: ArchitectureLimits, memory_mb: int | None
    ) -> ModelSize:
        from cerebro_db.training.backends.torch.sizes import check_size

        return check_size(config, limits, memory_mb)

    def facts(
        self,
        config: Mapping[str, Any],
        limits: ArchitectureLimits,
        memory_mb: int | None,
        weights: bytes | None,
    ) -> ArchitectureFacts:
        from cerebro_db.training.backends.torch.sizes import facts_of

        return facts_of(config, limits, memory_mb, weights)

    def net(self, name: str, shape: Sequence[int], units: int, activation: str) -> str:
        raise InvalidArgument(
            f"got the net {name} for PyTorch; allowed: for Keras, whose architectures have names"
        )

    def read_file(
        self, data: bytes, limits: ArchitectureLimits, memory_mb: int | None, tick: Tick
    ) -> tuple[str, bytes]:
        import json

        from cerebro_db.configs.aten import archive

        text, weights = archive.read(data, limits)
        tick()
        self.check_size(json.loads(text), limits, memory_mb)
        return text, weights

    def export(
        self,
        recipe: Recipe,
        state: State,
        wanted: Format,
        documents: Mapping[str, str],
        tick: Tick,
    ) -> bytes:
        from cerebro_db.training.backends.torch.export import export

        return export(recipe, state, wanted, documents, tick)

    def program_key(self, recipe: Recipe) -> Hashable:
        from cerebro_db.training.backends.torch.program import Program

        return Program.key(recipe)

    def program(self, recipe: Recipe) -> backends.Program:
        from cerebro_db.training.backends.torch.program import Program

        return Program(recipe)

    def scorer_key(self, recipe: Recipe) -> Hashable:
        from cerebro_db.training.backends.torch.scoring import Scorer

        return Scorer.key(recipe)

    def scorer(self, recipe: Recipe) -> backends.Scorer:
        from cerebro_db.training.backends.torch.scoring import Scorer

        return Scorer(recipe)

    def metrics(self, recipe: Recipe, total: Partial) -> list[float]:
        from cerebro_db.training.backends.torch.scoring import results_of

        return results_of(recipe, total)

    def scheduled_rate(self, spec: ScheduleSpec, step: int) -> float:
        from cerebro_db.training.backends.torch.schedules import scheduled_rate

        return scheduled_rate(spec, step)

    def function(self, expression: Expression, name: str) -> Callable[..., Any]:
        from cerebro_db.training.backends.torch.expressions import function_from

        return function_from(expression, name)

    def event_file(self, step: int, values: Mapping[str, float]) -> bytes:
        raise InvalidArgument("got tensorboard for a PyTorch model; allowed: for Keras models")


BACKEND = TorchBackend()
