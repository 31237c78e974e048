"""The total loss of a model: of its one output, or the weighted sum over several, as Keras has it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras

from cerebro_db.configs.model_outputs import OutputSpec
from cerebro_db.training import models


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

    def attach(self, model: keras.Model) -> None:
        """Let a model that was compiled without a loss compute this one."""
        model._compile_loss = self


def listed(value: Any) -> list[Any]:
    """List of what is of one output or of several."""
    return list(value) if isinstance(value, list | tuple) else [value]


def alone(values: Sequence[Any]) -> Any:
    """A list, or its only element: how Keras wants what is of one input or output."""
    return list(values) if len(values) > 1 else values[0]
