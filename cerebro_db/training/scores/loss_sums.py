"""Loss of one output as sums over rows, from which its value over all rows follows.

Keras gives the loss of a batch. Where that is a mean over the rows, so many rows are its weight. Where
a mask or ``ignore_class`` leaves steps out, the steps that count are. ``reduction='sum'`` is added up, and of
Dice and Tversky over a whole batch the sums are kept that their quotient is made of.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras.src import backend
from keras.src.losses.loss import squeeze_or_expand_to_same_rank

from cerebro_db.configs.grids.parameters import LossSpec

ROWS, STEPS, SUM, OVERLAP = "rows", "steps", "sum", "overlap"
_OVERLAPS = (keras.losses.Dice, keras.losses.Tversky)


@dataclass(frozen=True)
class LossPart:
    """Sums of the loss of one output over some rows.

    Attributes:
        kind: ``rows``, a sum weighted by rows; ``steps``, one weighted by the steps that count, and their
            number; ``sum``, a sum that is not divided; ``overlap``, sums of products, targets and outputs.
        sums: they add up over batches, buffers and partitions.
    """

    kind: str
    sums: tuple[float, ...]

    def __add__(self, other: LossPart) -> LossPart:
        return LossPart(self.kind, tuple(a + b for a, b in zip(self.sums, other.sums, strict=True)))

    def value(self, rows: int, spec: LossSpec) -> float:
        """The loss over all rows."""
        if self.kind == OVERLAP:
            return _overlap(np.reshape(self.sums, (3, -1)), spec)
        if self.kind == SUM:
            return self.sums[0]
        if self.kind == STEPS:
            return self.sums[0] / self.sums[1] if self.sums[1] else 0.0
        return self.sums[0] / max(rows, 1)


def kind_of(loss: Any, y_true: Any, y_pred: Any) -> str:
    """The kind of sums that a loss of Keras needs; it is known while a program is traced."""
    values, mask = _values_and_mask(loss, y_true, y_pred)
    across = values.shape.rank == 0 or values.shape[0] is not None
    if across and isinstance(loss, _OVERLAPS):
        return OVERLAP
    if values.shape.rank != 0 and loss.reduction == "sum":
        return SUM
    return ROWS if mask is None else STEPS


def sums_of(kind: str, loss: Any, y_true: Any, y_pred: Any) -> list[Any]:
    """The sums of a batch, as tensors of one dimension; traced into a program."""
    if kind == OVERLAP:
        return _overlap_sums(loss, y_true, y_pred)
    value = keras.ops.cast(loss(y_true, y_pred), "float32")
    if kind == SUM:
        return [value]
    if kind == ROWS:
        return [value * tf.cast(tf.shape(y_pred)[0], tf.float32)]
    _, mask = _values_and_mask(loss, y_true, y_pred)
    steps = tf.reduce_sum(tf.cast(mask, tf.float32))
    return [value * steps, steps]


def _values_and_mask(loss: Any, y_true: Any, y_pred: Any) -> tuple[Any, Any]:
    """The loss before it is reduced, and which of its elements count; None for all."""
    masks = [backend.get_keras_mask(y_pred)]
    values = loss.call(*_converted(loss, y_true, y_pred))
    masks.append(backend.get_keras_mask(values))
    given = [mask for mask in masks if mask is not None]
    if len(given) < 2:
        return values, given[0] if given else None
    return values, tf.logical_and(*given)


def _converted(loss: Any, y_true: Any, y_pred: Any) -> tuple[Any, Any]:
    truth = keras.ops.convert_to_tensor(y_true, dtype=loss.dtype)
    return truth, keras.ops.convert_to_tensor(y_pred, dtype=loss.dtype)


def _overlap_sums(loss: Any, y_true: Any, y_pred: Any) -> list[Any]:
    truth, found = squeeze_or_expand_to_same_rank(*_converted(loss, y_true, y_pred))
    axis = loss._fn_kwargs["axis"]
    return [
        tf.reshape(keras.ops.sum(one, axis=axis), (-1,)) for one in (truth * found, truth, found)
    ]


def _overlap(sums: np.ndarray, spec: LossSpec) -> float:
    """Dice or Tversky by the formulas of Keras."""
    both, truth, found = sums
    arguments = spec.all_arguments()
    if spec.name == "Dice":
        shares = 2.0 * both / (truth + found + keras.config.epsilon())
    else:
        missed, wrong = truth - both, found - both
        weighed = both + missed * arguments["alpha"] + wrong * arguments["beta"]
        shares = both / (weighed + keras.config.epsilon())
    lost = 1.0 - shares
    total = np.sum(lost) if arguments["reduction"] == "sum" else np.mean(lost)
    return float(total)
