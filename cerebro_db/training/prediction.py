"""Predictions of one model, or of several together, for batches of rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from cerebro_db.configs.custom import is_custom
from cerebro_db.configs.parameters import LossSpec
from cerebro_db.errors import InvalidArgument
from cerebro_db.training import models
from cerebro_db.training import state as states
from cerebro_db.training.buffers import decode, parse_arrays, to_float32
from cerebro_db.training.fields import Fields
from cerebro_db.training.outputs import probabilities
from cerebro_db.training.program import Recipe
from cerebro_db.training.scan import Scorers
from cerebro_db.training.scoring import Scorer
from cerebro_db.training.tasks import Architectures, recipe_of

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

    def load(self) -> None:
        """Put what was trained into the scorer, which may hold another model's."""
        if self._format == _WEIGHTS:
            models.set_weights(self.scorer.model, self._data)
        else:
            self.scorer.load(states.from_bytes(self._data), self.recipe.compile_params)

    def numbers(self, outputs: np.ndarray) -> np.ndarray:
        """What the model's outputs mean, ``float64[rows, ...]``."""
        numbers = outputs.astype(np.float64)
        if self.recipe.targets.kind != "class":
            return numbers
        loss = self.recipe.compile_params.loss
        return probabilities(numbers, loss, self.recipe.targets.num_classes)


def _without_functions(recipe: Recipe) -> Recipe:
    """The same without registered functions, which predictions have no use for."""
    params = recipe.compile_params
    if is_custom(params.loss.name):
        params = replace(params, loss=LossSpec("MeanSquaredError"))
    metrics = tuple(metric for metric in params.metrics if not is_custom(metric.name))
    return replace(recipe, compile_params=replace(params, metrics=metrics))


class Prediction:
    """Models that are loaded once and asked batch by batch; of several the mean counts.

    Args:
        text: JSON: the recipe of the first model, and shape, divisor, and ranks, the number of
            classes that are wanted of each row.
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
        self._shape = task.integers("shape", 0, 2**31 - 1, most=32)
        wanted = tuple(self._loaded.scorer.model.inputs[0].shape[1:])
        if self._shape != wanted:
            raise InvalidArgument(
                f"got rows of shape {self._shape}; allowed: {wanted}, as the model has it"
            )
        self._divisor = task.number("divisor")
        self._ranks = task.integer("ranks", 0)

    def extend(self, text: str, data: bytes) -> None:
        """Ask one more model, for targets of the same kind."""
        model = Predictor(Fields.parse(text), data, self._scorers, self._known)
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
        return self._answers(
            to_float32(parse_arrays(data, count, self._shape), self._divisor).reshape(
                count, *self._shape
            )
        )

    def buffer(self, data: bytes, count: int) -> Answers:
        """Answers for rows of a packed table, which have been divided already.

        Args:
            data: float32, row by row.
            count: number of rows.
        """
        return self._answers(decode(data, (count, *self._shape), np.float32))

    def _answers(self, features: np.ndarray) -> Answers:
        """Class ids, the best of each row first, and their probabilities; or the rows' values.

        Lists without structure: the server takes such an array much faster than many small ones.
        """
        self._tick()
        found = self._numbers(features)
        if self._models[0].recipe.targets.kind != "class":
            return None, found.ravel().tolist()
        order = np.argsort(-found, axis=1, kind="stable")[:, : self._ranks]
        return order.ravel().tolist(), np.take_along_axis(found, order, axis=1).ravel().tolist()

    def _numbers(self, features: np.ndarray) -> np.ndarray:
        total: np.ndarray | None = None
        for model in self._models:
            if model is not self._loaded:
                model.load()
                self._loaded = model
            numbers = model.numbers(model.scorer.predict(features))
            total = numbers if total is None else total + numbers
        assert total is not None
        return total / len(self._models) if len(self._models) > 1 else total
