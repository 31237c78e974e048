"""Parts of a call of a model: its inputs, its loss, traced functions, values of variables."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from cerebro_db.configs.grids.outputs import OutputSpec
from cerebro_db.training.backends.tensorflow import models
from cerebro_db.training.buffers import Shapes, width
from cerebro_db.training.scores.targets import TargetFacts


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


class Members:
    """The members of a model whose outputs are means of them.

    Args:
        model: of an architecture that ``check_members`` has let pass.
    """

    def __init__(self, model: keras.Model) -> None:
        means = [output._keras_history.operation for output in model.outputs]
        self._model = keras.Model(alone(model.inputs), [mean.input for mean in means])
        self._counts = [mean.input.shape[1] for mean in means]

    def __call__(self, inputs: Any) -> Any:
        """Predictions of each member for the rows of a batch, ``[rows, members, units]`` of each output."""
        return alone(listed(self._model(inputs, training=True)))

    def repeated(self, targets: Sequence[Any]) -> list[Any]:
        """The targets of each output, once for each of its members."""
        pairs = zip(targets, self._counts, strict=True)
        return [tf.repeat(target[:, tf.newaxis], count, axis=1) for target, count in pairs]


class Traced:
    """A function of one signature; it is traced by its first call.

    Args:
        function: of ``tf.function``, with an input signature.
    """

    def __init__(self, function: Any) -> None:
        self._function = function
        self._concrete: Any = None

    def trace(self) -> None:
        """Trace it, where no call did so."""
        if self._concrete is None:
            self._concrete = self._function.get_concrete_function()

    def __call__(self, *values: Any) -> Any:
        """Call it with arrays, or numbers, of the types of the signature."""
        self.trace()
        return self._concrete(*map(tf.convert_to_tensor, values))


# The raw operations are several times faster than the methods of variables, which many small
# variables feel.
def assign(variable: Any, value: np.ndarray) -> None:
    """Set a variable; shape and dtype are its own."""
    tf.raw_ops.AssignVariableOp(resource=variable.value.handle, value=value)


def read(variable: Any) -> np.ndarray:
    """A copy of the value of a variable."""
    tensor = tf.raw_ops.ReadVariableOp(resource=variable.value.handle, dtype=variable.value.dtype)
    found: np.ndarray = tensor.numpy()
    return found


class TotalLoss:
    """The loss for ``Model.compute_loss``, without the counters that Keras keeps for each output.

    Args:
        outputs: of the model.
    """

    def __init__(self, outputs: Sequence[OutputSpec]) -> None:
        self._losses = [models.make_loss(output.loss) for output in outputs]
        self._weights = [output.weight for output in outputs]

    def __call__(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> Any:
        """The weighted sum."""
        values = self.each(y_true, y_pred, sample_weight)
        weighted = [
            value if weight is None else keras.ops.multiply(value, weight)
            for value, weight in zip(values, self._weights, strict=True)
        ]
        return sum(weighted) if len(weighted) > 1 else weighted[0]

    def each(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> list[Any]:
        """The loss of each output, not weighted."""
        return [
            keras.ops.cast(loss(truth, prediction, sample_weight), "float32")
            for loss, truth, prediction in zip(
                self._losses, listed(y_true), listed(y_pred), strict=True
            )
        ]

    @property
    def one_by_one(self) -> Sequence[Any]:
        """The loss of Keras of each output."""
        return self._losses

    def attach(self, model: keras.Model) -> None:
        """Let a model that was compiled without a loss compute this one."""
        model._compile_loss = self


def listed(value: Any) -> list[Any]:
    """List of what is of one output or of several."""
    return list(value) if isinstance(value, list | tuple) else [value]


def alone(values: Sequence[Any]) -> Any:
    """A list, or its only element: how Keras wants what is of one input or output."""
    return list(values) if len(values) > 1 else values[0]


def encode(targets: Any, encoding: str, facts: TargetFacts) -> Any:
    """Stored targets as the tensor that Keras is given; traced into a program."""
    if encoding == "onehot":
        return tf.one_hot(targets, facts.num_classes, dtype=tf.float32)
    if encoding == "binary":
        return tf.cast(targets, tf.float32)[:, tf.newaxis]
    if encoding == "ids":
        return targets[:, tf.newaxis]
    return targets[:, tf.newaxis] if facts.shape == () else targets
