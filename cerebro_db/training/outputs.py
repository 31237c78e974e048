"""Meaning of the outputs of a model."""

from __future__ import annotations

import numpy as np

from cerebro_db.configs.parameters import LossSpec


def probabilities(outputs: np.ndarray, loss: LossSpec, classes: int) -> np.ndarray:
    """Probability of each class, ``float64[rows, classes]``.

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
