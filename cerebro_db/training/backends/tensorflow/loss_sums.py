"""Sums of the loss of a batch as tensors, by the kinds of ``training.scores.sums``."""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf
from keras.src import backend
from keras.src.losses.loss import squeeze_or_expand_to_same_rank

from cerebro_db.training.scores.sums import OVERLAP, ROWS, STEPS, SUM

_OVERLAPS = (keras.losses.Dice, keras.losses.Tversky)


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
