"""Scores that need every prediction of a data set: the exact area under the ROC curve, the confusion matrix."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from cerebro_db.configs.exactness import AUC, CONFUSION, is_exact
from cerebro_db.configs.losses import Target
from cerebro_db.errors import InvalidArgument
from cerebro_db.training.outputs import probabilities
from cerebro_db.training.program import Recipe
from cerebro_db.training.targets import TargetFacts, encoding_for


@dataclass
class Detail:
    """Share of one configuration's predictions for some rows.

    Args:
        kind: AUC or CONFUSION.
        recipe: of the configuration.
        units: last dimension of the output.
        place: of the output among those of the model.
    """

    kind: str
    recipe: Recipe
    units: int
    place: int = 0
    _positive: list[np.ndarray] = field(default_factory=list)
    _negative: list[np.ndarray] = field(default_factory=list)
    _counts: dict[tuple[int, int], int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.kind not in (AUC, CONFUSION):
            raise InvalidArgument(f"task: got the detail {self.kind!r}; allowed: auc, confusion")
        if self.kind == CONFUSION and self._facts.kind != "class":
            raise InvalidArgument("got a float target; allowed: classes")

    def add(self, outputs: np.ndarray, targets: np.ndarray) -> None:
        """Take the outputs for some rows, and their stored targets."""
        if self.kind == CONFUSION:
            self._count(outputs, targets)
            return
        truth = self._truth(targets).reshape(outputs.shape)
        self._positive.append(outputs[truth].astype(np.float32))
        self._negative.append(outputs[~truth].astype(np.float32))

    def to_json(self) -> dict[str, Any]:
        """As plain values."""
        if self.kind == CONFUSION:
            counts = self._counts.items()
            return {"counts": [[*pair, count] for pair, count in sorted(counts)]}
        return {
            "positive": _packed(self._positive),
            "negative": _packed(self._negative),
        }

    @property
    def _facts(self) -> TargetFacts:
        return self.recipe.targets.each[self.place]

    def _truth(self, targets: np.ndarray) -> np.ndarray:
        facts = self._facts
        if facts.kind != "class":
            return targets != 0
        if encoding_for(facts, Target.BINARY, self.units) == "onehot":
            return np.eye(facts.num_classes, dtype=bool)[targets]
        return targets != 0

    def _count(self, outputs: np.ndarray, targets: np.ndarray) -> None:
        classes, loss = self._facts.num_classes, self.recipe.outputs[self.place].loss
        found = probabilities(outputs.astype(np.float64), loss, classes).argmax(axis=1)
        pairs, counts = np.unique(targets.astype(np.int64) * classes + found, return_counts=True)
        for pair, count in zip(pairs.tolist(), counts.tolist(), strict=True):
            place = divmod(pair, classes)
            self._counts[place] = self._counts.get(place, 0) + count


def details_for(kind: str, recipe: Recipe, units: Sequence[int]) -> tuple[Detail | None, ...]:
    """Details of each output; None for those of several of which there is nothing to ask."""
    if len(units) == 1:
        return (Detail(kind, recipe, units[0]),)
    has = [
        any(map(is_exact, output.metrics)) if kind == AUC else facts.kind == "class"
        for output, facts in zip(recipe.outputs, recipe.targets.each, strict=True)
    ]
    return tuple(
        Detail(kind, recipe, units[place], place) if asked else None
        for place, asked in enumerate(has)
    )


def exact_auc(details: Sequence[Any]) -> float:
    """The probability that a positive has a higher output than a negative, ties counting half.

    Args:
        details: what :meth:`Detail.to_json` told of each partition.

    Returns:
        NaN where there are no positives, or no negatives.
    """
    positive = np.concatenate([_unpacked(detail["positive"]) for detail in details])
    negative = np.sort(np.concatenate([_unpacked(detail["negative"]) for detail in details]))
    pairs = len(positive) * len(negative)
    if not pairs:
        return float("nan")
    below = np.searchsorted(negative, positive, "left").sum(dtype=np.int64)
    not_above = np.searchsorted(negative, positive, "right").sum(dtype=np.int64)
    return (int(below) + int(not_above)) / (2 * pairs)


def added_counts(details: Sequence[Any]) -> list[list[int]]:
    """Of all partitions together: actual class, predicted class, rows; by their ids."""
    total: dict[tuple[int, int], int] = {}
    for detail in details:
        for actual, predicted, count in detail["counts"]:
            total[actual, predicted] = total.get((actual, predicted), 0) + int(count)
    return [[*pair, count] for pair, count in sorted(total.items())]


def _packed(parts: Sequence[np.ndarray]) -> str:
    joined = np.concatenate([np.zeros(0, np.float32), *parts])
    return base64.b64encode(joined.astype("<f4").tobytes()).decode("ascii")


def _unpacked(text: str) -> np.ndarray:
    return np.frombuffer(base64.b64decode(text), "<f4")
