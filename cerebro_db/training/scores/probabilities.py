"""Probabilities out of the outputs of a model."""

from __future__ import annotations

import numpy as np

from cerebro_db.configs.functions.losses import LossSpec


def probabilities(outputs: np.ndarray, loss: LossSpec, classes: int) -> np.ndarray:
    """Probability of each class, ``float64[rows, classes]``.

    One output is the probability of the second of two classes. Where the loss works on logits
    the model's output is no probability yet.
    """
    values = outputs
    of_one = outputs.shape[1] == 1 and classes == 2
    if loss.all_arguments().get("from_logits"):
        values = of_logits(outputs, one_by_one=of_one or loss.compares_each)
    if of_one:
        return np.concatenate([1.0 - values, values], axis=1)
    return values[:, :classes]


def of_logits(logits: np.ndarray, *, one_by_one: bool) -> np.ndarray:
    """The probabilities that logits stand for: each by itself, or those of the last dimension together."""
    if one_by_one:
        return 0.5 * (1.0 + np.tanh(0.5 * logits))
    values = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return values / values.sum(axis=-1, keepdims=True)
