"""Predictions of one model for batches of rows as the server serialises them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from cerebro_db.configs.parameters import LossSpec
from cerebro_db.training import state as states
from cerebro_db.training.buffers import parse_arrays, to_float32
from cerebro_db.training.fields import Fields
from cerebro_db.training.scan import Scorers
from cerebro_db.training.tasks import Architectures, recipe_of

Answers = tuple[list[int] | None, list[float]]


class Prediction:
    """A model that is loaded once and asked batch by batch.

    Args:
        text: JSON: the recipe of the model, and shape, divisor, and ranks, the number of classes
            that are wanted of each row.
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
        task = Fields.parse(text)
        recipe = recipe_of(task, known)
        self._scorer = scorers.get(recipe)
        self._scorer.load(states.from_bytes(data), recipe.compile_params)
        self._loss, self._targets = recipe.compile_params.loss, recipe.targets
        self._shape = task.integers("shape", 0, 2**31 - 1, most=32)
        self._divisor = task.number("divisor")
        self._ranks = task.integer("ranks", 0)
        self._tick = tick

    def batch(self, data: bytes, count: int) -> Answers:
        """Class ids, the best of each row first, and their probabilities; or the rows' values.

        Lists without structure: the server takes such an array much faster than many small ones.

        Args:
            data: what array_send() wrote of every row, concatenated.
            count: number of rows.
        """
        self._tick()
        features = to_float32(parse_arrays(data, count, self._shape), self._divisor)
        outputs = self._scorer.predict(features.reshape(count, *self._shape)).astype(np.float64)
        if self._targets.kind != "class":
            return None, outputs.ravel().tolist()
        found = probabilities(outputs, self._loss, self._targets.num_classes)
        order = np.argsort(-found, axis=1, kind="stable")[:, : self._ranks]
        return order.ravel().tolist(), np.take_along_axis(found, order, axis=1).ravel().tolist()


def probabilities(outputs: np.ndarray, loss: LossSpec, classes: int) -> np.ndarray:
    """What a model says of each class, ``float64[rows, classes]``.

    One output is the probability of the second of two classes. Where the loss works on logits
    the model's output is no probability yet.
    """
    values = outputs
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
