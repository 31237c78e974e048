"""Arguments of a call of a model: the rows of its one input, or those of several out of one array."""

from __future__ import annotations

import math
from typing import Any

import keras
import tensorflow as tf

from cerebro_db.training.blocks import Shapes, width


class ModelInputs:
    """The inputs of a model.

    Args:
        model: whose.
    """

    def __init__(self, model: keras.Model) -> None:
        self.shapes: Shapes = tuple(tuple(one.shape[1:]) for one in model.inputs)

    @property
    def row(self) -> tuple[int, ...]:
        """The shape of a row as a worker holds it: of several inputs, their numbers side by side."""
        return self.shapes[0] if len(self.shapes) == 1 else (width(self.shapes),)

    def split(self, features: Any) -> Any:
        """Rows as the model takes them: ``[rows, ...]``, or a list of such; traced into a program."""
        if len(self.shapes) == 1:
            return features
        found, start = [], 0
        for shape in self.shapes:
            stop = start + math.prod(shape)
            rows = features[:, start:stop]
            found.append(tf.reshape(rows, (-1, *shape)) if len(shape) != 1 else rows)
            start = stop
        return found
