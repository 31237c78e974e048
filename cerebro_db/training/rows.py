"""One row at a time: a model that stays loaded, called as directly as TensorFlow allows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from cerebro_db.configs.architecture import ArchitectureLimits
from cerebro_db.errors import InvalidArgument, InvalidData
from cerebro_db.training.buffers import to_float32
from cerebro_db.training.fields import Fields
from cerebro_db.training.prediction import Predictor
from cerebro_db.training.scan import Scorers
from cerebro_db.training.tasks import Architectures


class RowModel:
    """A model for single rows.

    Args:
        task: the recipe of the model, and ``format``, how ``data`` is written.
        data: the model's state.
        limits: of architectures.
        class_values: in the order of the ids; empty for float targets.
        shape: of a row.
        divisor: the features are divided by it.
    """

    def __init__(
        self,
        task: Mapping[str, Any],
        data: bytes,
        limits: ArchitectureLimits,
        class_values: Sequence[str | None],
        shape: tuple[int, ...],
        divisor: float,
    ) -> None:
        # A scorer of its own: what else is computed in this process must not load another state.
        self._model = Predictor(Fields(task), data, Scorers(1), Architectures(limits))
        self._forward = self._model.scorer.one_row()
        self._class_values, self._shape, self._divisor = class_values, shape, divisor

    def answer(
        self, features: Sequence[Any]
    ) -> tuple[str | None, float | None, list[float] | list[Any]]:
        """The best class and its probability (None for float targets), and all numbers.

        Raises:
            InvalidArgument: the features have another shape.
            InvalidData: one of them is NULL, or no number that a model can take.
        """
        row = np.asarray(features, np.float64)
        if row.shape != self._shape:
            raise InvalidArgument(
                f"features: got the shape {row.shape}; allowed: {self._shape}, that of the rows "
                "that the model was trained on"
            )
        try:
            single = to_float32(row[np.newaxis], self._divisor)
        except InvalidData:
            raise InvalidData(
                "features: got a NULL, or a value that is NaN, infinite or too large; "
                "allowed: finite float32 numbers"
            ) from None
        found = self._model.numbers(self._forward(tf.constant(single)).numpy())[0]
        if not self._class_values:
            return None, None, found.tolist() if found.ndim else [float(found)]
        best = int(np.argmax(found))
        return self._class_values[best], float(found[best]), found.tolist()
