"""ROC curves and confusion of one configuration: counts of probabilities, which add up over partitions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

BINS = 1000
# Of more classes there is one curve for all of them together.
MOST_CLASSES = 30


@dataclass
class CurveCounts:
    """Counts of one output for some rows.

    Args:
        classes: how many there are.
        positive, negative: ``int64[curves, bins]``, rows of a class and of others by its probability.
        pairs: rows by actual and predicted class.
    """

    classes: int
    positive: np.ndarray = field(init=False)
    negative: np.ndarray = field(init=False)
    pairs: dict[tuple[int, int], int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        shape = (len(curve_classes(self.classes)), BINS + 1)
        self.positive, self.negative = np.zeros(shape, np.int64), np.zeros(shape, np.int64)

    def add(self, probabilities: np.ndarray, targets: np.ndarray) -> None:
        """Take some rows.

        Args:
            probabilities: ``float[rows, classes]``.
            targets: ``int[rows]``, ids of classes.
        """
        actual = targets.astype(np.int64).reshape(-1)
        found = probabilities.argmax(axis=1)
        codes, counts = np.unique(actual * self.classes + found, return_counts=True)
        for code, count in zip(codes.tolist(), counts.tolist(), strict=True):
            pair = divmod(code, self.classes)
            self.pairs[pair] = self.pairs.get(pair, 0) + count
        bins = (np.clip(np.nan_to_num(probabilities), 0.0, 1.0) * BINS).astype(np.int64)
        truth = np.eye(self.classes, dtype=bool)[actual]
        for place, one in enumerate(curve_classes(self.classes)):
            chosen = slice(None) if one is None else one
            is_positive, of_class = truth[:, chosen].ravel(), bins[:, chosen].ravel()
            self.positive[place] += np.bincount(of_class[is_positive], minlength=BINS + 1)
            self.negative[place] += np.bincount(of_class[~is_positive], minlength=BINS + 1)

    def to_json(self) -> dict[str, Any]:
        """As plain values."""
        return {
            "positive": self.positive.tolist(),
            "negative": self.negative.tolist(),
            "pairs": [[*pair, count] for pair, count in sorted(self.pairs.items())],
        }


def curve_classes(classes: int) -> list[int | None]:
    """The classes that have a curve: the second of two, each of several; None for all of many together."""
    if classes > MOST_CLASSES:
        return [None]
    return [1] if classes == 2 else list(range(classes))


def added(classes: int, parts: Sequence[Any]) -> dict[str, Any]:
    """Curves and confusion of all partitions together.

    Args:
        classes: how many there are.
        parts: what :meth:`CurveCounts.to_json` gave of each partition.

    Returns:
        ``{"pairs": [[actual, predicted, rows]], "curves": [{"class": id or None, "auc", "points"}]}``;
        points are false positive rate, true positive rate and threshold, from the highest threshold on.
        The area is None where there are no positives, or no negatives.
    """
    pairs: dict[tuple[int, int], int] = {}
    for part in parts:
        for actual, predicted, count in part["pairs"]:
            pairs[actual, predicted] = pairs.get((actual, predicted), 0) + int(count)
    positive, negative = (
        np.sum([np.asarray(part[name], np.int64) for part in parts], axis=0)
        for name in ("positive", "negative")
    )
    curves = [
        {"class": one, **_curve(positive[place], negative[place])}
        for place, one in enumerate(curve_classes(classes))
    ]
    return {"pairs": [[*pair, count] for pair, count in sorted(pairs.items())], "curves": curves}


def _curve(positive: np.ndarray, negative: np.ndarray) -> dict[str, Any]:
    totals = int(positive.sum()), int(negative.sum())
    if not all(totals):
        return {"auc": None, "points": []}
    hits = np.concatenate([[0.0], np.cumsum(positive[::-1]) / totals[0]])
    alarms = np.concatenate([[0.0], np.cumsum(negative[::-1]) / totals[1]])
    thresholds = np.concatenate([[1.0], np.arange(BINS, -1, -1) / BINS])
    moves = np.concatenate([[True], (np.diff(hits) > 0) | (np.diff(alarms) > 0)])
    points = np.stack([alarms, hits, thresholds], axis=1)[moves]
    area = np.sum(np.diff(alarms) * (hits[1:] + hits[:-1]) / 2)
    return {"auc": float(area), "points": points.round(6).tolist()}
