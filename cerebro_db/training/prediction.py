"""Predictions of one model for batches of rows as the server serialises them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from cerebro_db.configs.parameters import LossSpec
from cerebro_db.configs.predictions import Answer, PredictionType
from cerebro_db.training import state as states
from cerebro_db.training.buffers import parse_arrays, to_float32
from cerebro_db.training.scan import Scorers
from cerebro_db.training.tasks import Architectures, recipe_of

Row = tuple[list[str | None] | None, list[Any]]


class Prediction:
    """A model that is loaded once and asked batch by batch.

    Args:
        text: JSON: the recipe of the model, and shape, divisor, class_values, answer, number.
        data: the model's state.
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
        task = json.loads(text)
        recipe = recipe_of(task, known)
        self._scorer = scorers.get(recipe)
        self._scorer.load(states.from_bytes(data), recipe.compile_params)
        self._loss = recipe.compile_params.loss
        self._shape = tuple(task["shape"])
        self._divisor = float(task["divisor"])
        self._target_shape = recipe.targets.shape
        self._is_class = recipe.targets.kind == "class"
        self._classes = np.asarray([*task["class_values"], None], object)[:-1]
        self._type = PredictionType(Answer(task["answer"]), task["number"])
        self._tick = tick

    def rows(self, data: bytes, count: int) -> Iterator[Row]:
        """For each row its class values, the best first, and their probabilities; or its values.

        Args:
            data: what array_send() wrote of every row, concatenated.
            count: number of rows.
        """
        self._tick()
        features = to_float32(parse_arrays(data, count, self._shape), self._divisor)
        outputs = self._scorer.predict(features.reshape(count, *self._shape))
        if self._is_class:
            return self._classified(probabilities(outputs, self._loss, len(self._classes)))
        values = outputs.astype(np.float64).reshape(count, *(self._target_shape or (1,)))
        return ((None, row) for row in values.tolist())

    def _classified(self, found: np.ndarray) -> Iterator[Row]:
        wanted = found.shape[1]
        if self._type.answer is Answer.RESPONSE:
            wanted = 1
        elif self._type.answer is Answer.TOP:
            wanted = min(wanted, int(self._type.number))
        order = np.argsort(-found, axis=1, kind="stable")[:, :wanted]
        ranked = np.take_along_axis(found, order, axis=1)
        names, numbers = self._classes[order].tolist(), ranked.tolist()
        if self._type.answer is not Answer.ABOVE:
            return zip(names, numbers, strict=True)
        counts = (ranked > self._type.number).sum(axis=1).tolist()
        return (
            (row[:count], values[:count])
            for row, values, count in zip(names, numbers, counts, strict=True)
        )


def probabilities(outputs: np.ndarray, loss: LossSpec, classes: int) -> np.ndarray:
    """What a model says of each class, ``float64[rows, classes]``.

    One output is the probability of the second of two classes. Where the loss works on logits
    the model's output is no probability yet.
    """
    values = outputs.astype(np.float64)
    logits = bool(loss.all_arguments().get("from_logits"))
    if values.shape[1] == 1 and classes == 2:
        second = 0.5 * (1.0 + np.tanh(0.5 * values)) if logits else values
        return np.concatenate([1.0 - second, second], axis=1)
    if logits and loss.name.startswith("Binary"):
        values = 0.5 * (1.0 + np.tanh(0.5 * values))
    elif logits:
        values = np.exp(values - values.max(axis=1, keepdims=True))
        values /= values.sum(axis=1, keepdims=True)
    return values[:, :classes]
