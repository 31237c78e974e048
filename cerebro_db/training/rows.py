"""One row at a time: a model that stays loaded, called as directly as TensorFlow allows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from cerebro_db.errors import InvalidArgument, InvalidData
from cerebro_db.training.blocks import Shapes, side_by_side
from cerebro_db.training.buffers import to_float32
from cerebro_db.training.fields import Fields
from cerebro_db.training.prediction import Predictor
from cerebro_db.training.scan import Scorers
from cerebro_db.training.tasks import Architectures

Answer = tuple[str | None, float | None, list[Any]]


class RowModel:
    """A model for single rows.

    Args:
        task: the recipe of the model, and ``format``, how ``data`` is written.
        data: the model's state.
        known: architectures of this process.
        names: of the targets.
        class_values: of each output, in the order of the ids; empty for float targets.
        shapes: of a row of each input.
        divisor: the features are divided by it.
        class_kinds: of each output, the type of its class values where these are dates or times.
    """

    def __init__(
        self,
        task: Mapping[str, Any],
        data: bytes,
        known: Architectures,
        names: Sequence[str],
        class_values: Sequence[Sequence[str | None]],
        shapes: Shapes,
        divisor: float,
        class_kinds: Sequence[str | None] = (),
    ) -> None:
        # A scorer of its own: what else is computed in this process must not load another state.
        self._model = Predictor(Fields(task), data, Scorers(1), known)
        self.names, self.class_kinds = tuple(names), tuple(class_kinds)
        self._forward = self._model.scorer.one_row()
        self._class_values, self._shapes, self._divisor = class_values, shapes, divisor

    def answer(self, features: Sequence[Any]) -> Answer:
        """The best class and its probability (None for float targets), and all numbers.

        Raises:
            InvalidArgument: the features have another shape, or there are several inputs or outputs.
            InvalidData: one of them is NULL, or no number that a model can take.
        """
        if len(self._shapes) > 1 or len(self._class_values) > 1:
            raise InvalidArgument(
                f"model_table: got a model of {len(self._shapes)} inputs and "
                f"{len(self._class_values)} outputs; allowed: one of each",
                hint="cerebro.cerebro_predict_outputs takes several",
            )
        return self.answers([features])[0]

    def answers(self, inputs: Sequence[Any]) -> list[Answer]:
        """The same for each output, from the features of each input."""
        if len(inputs) != len(self._shapes):
            raise InvalidArgument(
                f"features: got {len(inputs)} inputs; allowed: {len(self._shapes)}, as many as the "
                "model has"
            )
        rows = [
            self._row(features, shape) for features, shape in zip(inputs, self._shapes, strict=True)
        ]
        single = rows[0] if len(rows) == 1 else side_by_side(rows)
        outputs = [output.numpy() for output in self._forward(tf.constant(single))]
        found = [numbers[0] for numbers in self._model.numbers(outputs)]
        return [
            _answer(numbers, values)
            for numbers, values in zip(found, self._class_values, strict=True)
        ]

    def _row(self, features: Any, shape: tuple[int, ...]) -> np.ndarray:
        try:
            row = np.asarray(features, np.float64)
        except (ValueError, TypeError):
            raise InvalidArgument(
                f"features: got something else than an array of numbers; allowed: the shape {shape}"
            ) from None
        if row.shape != shape:
            raise InvalidArgument(
                f"features: got the shape {row.shape}; allowed: {shape}, that of the rows "
                "that the model was trained on"
            )
        try:
            return to_float32(row[np.newaxis], self._divisor)
        except InvalidData:
            raise InvalidData(
                "features: got a NULL, or a value that is NaN, infinite or too large; "
                "allowed: finite float32 numbers",
                hint="coalesce(value, 0) replaces a NULL; leave such a row out otherwise",
            ) from None


def _answer(numbers: np.ndarray, class_values: Sequence[str | None]) -> Answer:
    if not class_values:
        return None, None, numbers.tolist() if numbers.ndim else [float(numbers)]
    best = int(np.argmax(numbers))
    return class_values[best], float(numbers[best]), numbers.tolist()
