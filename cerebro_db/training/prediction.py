"""Predictions of one model, or of several together, for batches of rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from cerebro_db.configs.by_output import ByOutput
from cerebro_db.configs.custom import is_custom
from cerebro_db.configs.parameters import LossSpec
from cerebro_db.errors import InvalidArgument
from cerebro_db.training import models
from cerebro_db.training import state as states
from cerebro_db.training.blocks import Shapes, decode_features, parse_rows
from cerebro_db.training.fields import Fields
from cerebro_db.training.outputs import probabilities
from cerebro_db.training.program import Recipe
from cerebro_db.training.scan import Scorers
from cerebro_db.training.scoring import Scorer
from cerebro_db.training.tasks import Architectures, inputs_of, recipe_of

Answers = tuple[list[int] | None, list[float]]
# What a model's state may be: that of a run, or what ``model_weights`` of a model holds.
_STATE, _WEIGHTS = "state", "weights"


class Predictor:
    """A model with what was trained: features in, probabilities of classes or values out.

    Args:
        task: the recipe of the model, and ``format``, how ``data`` is written.
        data: the model's state.
        scorers: of the worker; models of one kind share a scorer.
        known: architectures of the worker.
    """

    def __init__(self, task: Fields, data: bytes, scorers: Scorers, known: Architectures) -> None:
        self.recipe: Recipe = recipe_of(task, known)
        self._format = task.text("format")
        if self._format not in (_STATE, _WEIGHTS):
            raise InvalidArgument(f"task: got the format {self._format!r}; allowed: state, weights")
        self._data = data
        self.scorer: Scorer = scorers.get(_without_functions(self.recipe))
        self.load()

    @property
    def kept_bytes(self) -> int:
        """Bytes that are kept of the model beside its scorer."""
        return len(self._data)

    def load(self) -> None:
        """Put what was trained into the scorer, which may hold another model's."""
        if self._format == _WEIGHTS:
            models.set_weights(self.scorer.model, self._data)
        else:
            self.scorer.load(states.from_bytes(self._data), self.recipe.compile_params)

    def numbers(self, outputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Meaning of the model's outputs, each ``float64[rows, ...]``."""
        return [
            probabilities(output.astype(np.float64), spec.loss, facts.num_classes)
            if facts.kind == "class"
            else output.astype(np.float64)
            for output, spec, facts in zip(
                outputs, self.recipe.outputs, self.recipe.targets.each, strict=True
            )
        ]


def _without_functions(recipe: Recipe) -> Recipe:
    """The same without metrics and registered functions, which predictions have no use for."""
    losses = tuple(
        LossSpec("MeanSquaredError") if is_custom(output.loss.name) else output.loss
        for output in recipe.outputs
    )
    params = replace(
        recipe.compile_params,
        loss=losses[0],
        losses=ByOutput(losses) if len(losses) > 1 else None,
        metrics=(),
        output_metrics=None,
    )
    return replace(recipe, compile_params=params)


class Prediction:
    """Models that are loaded once and asked batch by batch; of several the mean counts.

    Args:
        text: JSON: the recipe of the first model, and shape, divisor, and ranks, for each output
            the number of classes that are wanted of each row; for several inputs their shapes.
        data: that model's state.
        scorers: of the worker.
        known: architectures of the worker.
        tick: called at every batch.
    """

    def __init__(
        self,
        text: str,
        data: bytes,
        scorers: Scorers,
        known: Architectures,
        tick: Callable[[], None],
    ) -> None:
        task = Fields.parse(text)
        self._scorers, self._known, self._tick = scorers, known, tick
        self._models = [Predictor(task, data, scorers, known)]
        self._loaded = self._models[0]
        given = inputs_of(task) or (task.integers("shape", 0, 2**31 - 1, most=32),)
        self._inputs = self._loaded.scorer.inputs.shapes
        if given != self._inputs:
            raise InvalidArgument(
                f"got rows of shape {_shown(given)}; allowed: {_shown(self._inputs)}, "
                "as the model has it"
            )
        self._divisor = task.number("divisor")
        self._targets = self._loaded.recipe.targets.each
        self._ranks = task.integers("ranks", 0, most=len(self._targets))
        if len(self._ranks) != len(self._targets):
            raise InvalidArgument(
                f"task: got {len(self._ranks)} ranks; allowed: one for each of the "
                f"{len(self._targets)} outputs"
            )

    def extend(self, text: str, data: bytes) -> None:
        """Ask one more model, for targets of the same kind."""
        task = Fields.parse(text)
        models = [(model.recipe, model.kept_bytes) for model in self._models]
        self._known.check_together([*models, (recipe_of(task, self._known), len(data))])
        model = Predictor(task, data, self._scorers, self._known)
        if model.recipe.targets != self._models[0].recipe.targets:
            raise InvalidArgument("task: got a model of other targets than the first one's")
        self._models.append(model)
        self._loaded = model

    def batch(self, data: bytes, count: int) -> Answers:
        """Answers for rows as the server serialises them.

        Args:
            data: what array_send() wrote of every row, concatenated.
            count: number of rows.
        """
        return self._answers(parse_rows(data, count, self._inputs, self._divisor))

    def buffer(self, data: bytes, count: int) -> Answers:
        """Answers for rows of a packed table, which have been divided already.

        Args:
            data: float32, row by row.
            count: number of rows.
        """
        shape = [size for row in self._inputs for size in (count, *row)]
        return self._answers(decode_features(data, shape, self._inputs))

    def _answers(self, features: np.ndarray) -> Answers:
        """Class ids, the best of each row first, and their probabilities; or the rows' values.

        Of several outputs what is of the first one comes first in each row. Lists without
        structure: the server takes such an array much faster than many small ones.
        """
        self._tick()
        classes, numbers = [], []
        for found, ranks, facts in zip(
            self._numbers(features), self._ranks, self._targets, strict=True
        ):
            if facts.kind != "class":
                numbers.append(found.reshape(len(found), -1))
                continue
            order = np.argsort(-found, axis=1, kind="stable")[:, :ranks]
            classes.append(order)
            numbers.append(np.take_along_axis(found, order, axis=1))
        return _flat(classes) if classes else None, _flat(numbers)

    def _numbers(self, features: np.ndarray) -> list[np.ndarray]:
        total: list[np.ndarray] | None = None
        for model in self._models:
            if model is not self._loaded:
                model.load()
                self._loaded = model
            numbers = model.numbers(model.scorer.predict(features))
            total = [a + b for a, b in zip(total, numbers, strict=True)] if total else numbers
        assert total is not None
        count = len(self._models)
        return [one / count for one in total] if count > 1 else total


def _flat(parts: Sequence[np.ndarray]) -> list[Any]:
    """Rows of all parts, side by side, one after another."""
    joined = np.concatenate(parts, axis=1) if len(parts) > 1 else parts[0]
    flat: list[Any] = joined.ravel().tolist()
    return flat


def _shown(shapes: Shapes) -> str:
    return str(shapes[0] if len(shapes) == 1 else shapes)
