"""Greedy selection of an ensemble: Caruana et al. 2004, "Ensemble Selection from Libraries of Models"."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

_LEAST = 1e-7  # of a probability, as Keras has it

# Badness of predictions ``[rows, units]`` for targets ``[rows]``, of ids or numbers.
Badness = Callable[[np.ndarray, np.ndarray], float]


def _log_loss(found: np.ndarray, truth: np.ndarray) -> float:
    chosen = found[np.arange(len(found)), truth.astype(int)]
    return float(-np.log(np.clip(chosen, _LEAST, 1)).mean())


def _error(found: np.ndarray, truth: np.ndarray) -> float:
    return float((found.argmax(axis=1) != truth).mean())


def _auc(found: np.ndarray, truth: np.ndarray) -> float:
    """1 - the area under the ROC curve of the second of two classes, by the sums of ranks."""
    values, positive = found[:, 1], truth == 1
    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[places]
    positives, negatives = int(positive.sum()), int((~positive).sum())
    if not positives or not negatives:
        return 0.5
    above = ranks[positive].sum() - positives * (positives + 1) / 2
    return float(1 - above / (positives * negatives))


def _squared(found: np.ndarray, truth: np.ndarray) -> float:
    return float(((found[:, 0] - truth) ** 2).mean())


def _absolute(found: np.ndarray, truth: np.ndarray) -> float:
    return float(np.abs(found[:, 0] - truth).mean())


OF_CLASSES: Mapping[str, Badness] = {"loss": _log_loss, "accuracy": _error, "auc": _auc}
OF_NUMBERS: Mapping[str, Badness] = {"rmse": _squared, "mae": _absolute}


def selected(
    outputs: Sequence[np.ndarray], truth: np.ndarray, badness: Badness, members: int
) -> list[int]:
    """Counts of each model in the best ensemble that is found, 0 for most.

    In each of so many steps the model is added, perhaps again, with which the mean is best; the best of all steps
    counts, the shortest among equals. A step that is no better may come before one that is.

    Args:
        outputs: of the models, the best one first: ``[rows, units]``, probabilities of all classes or numbers.
        truth: ids of classes or numbers, ``[rows]``.
        badness: less is better.
        members: steps.
    """
    counts = [0] * len(outputs)
    total = np.zeros(outputs[0].shape)
    best, kept = np.inf, counts
    for step in range(1, members + 1):
        values = [badness((total + one) / step, truth) for one in outputs]
        place = int(np.argmin(values))
        counts = [count + (one == place) for one, count in enumerate(counts)]
        total += outputs[place]
        if values[place] < best:
            best, kept = values[place], counts
    return kept
