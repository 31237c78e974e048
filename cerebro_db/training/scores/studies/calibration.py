"""How far probabilities are those of the classes: reliability, and the temperature (Guo et al. 2017) or steps that correct it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from cerebro_db.errors import InvalidArgument, InvalidData
from cerebro_db.training.fields import Fields
from cerebro_db.training.recipe import Recipe
from cerebro_db.training.scores.isotonic import Ramps, isotonic, ramps_of
from cerebro_db.training.scores.probabilities import of_logits, probabilities
from cerebro_db.training.scores.studies.study import MAX_PLACE, Studied, Study, read_array, written

# Reciprocals of temperatures between which the best one is looked for, and steps that halve their distance.
_LEAST, _MOST, _STEPS = 1e-4, 1e4, 100
BINS = 15


class Reliability(Study):
    """Counts of rows by their confidence: how many, the sum of their confidences, how many are right.

    The confidence is the probability of the class that is predicted, or of a given class.
    """

    kind = "reliability"

    def __init__(self, task: Fields, studied: Studied) -> None:
        super().__init__(task, studied)
        self._class = task.integer("class", 0, MAX_PLACE) if task.has("class") else None
        self._sums = np.zeros((3, task.integer("bins", 1, MAX_PLACE)))

    def chunk(self, number: int, features: np.ndarray, targets: list[np.ndarray]) -> None:
        """Count the rows."""
        self._studied.tick()
        found = probabilities_of(self._studied, features)
        chosen = found.argmax(axis=1) if self._class is None else self._class
        confidence = found[np.arange(len(found)), chosen]
        self._sums += binned(confidence, targets[0] == chosen, self._sums.shape[1])

    def to_json(self) -> Any:
        """The sums of each bin."""
        return self._sums.tolist()

    @classmethod
    def combined(cls, task: Fields, recipe: Recipe, parts: Sequence[Any]) -> Any:
        """The sums of all partitions."""
        return np.sum(parts, axis=0).tolist()


def probabilities_of(studied: Studied, features: np.ndarray) -> np.ndarray:
    """Probabilities of the classes of a model of one target."""
    (output,), recipe = studied.scorer.predict(features), studied.recipe
    (facts,), (spec,) = recipe.targets.each, recipe.outputs
    return probabilities(output.astype(np.float64), spec.loss, facts.num_classes)


def binned(confidence: np.ndarray, right: np.ndarray, bins: int) -> np.ndarray:
    """For bins of the same width, rows, sum of confidences, and how many are right: ``[3, bins]``."""
    places = np.clip(np.ceil(confidence * bins).astype(np.int64) - 1, 0, bins - 1)
    weights = (None, confidence, right.astype(np.float64))
    return np.stack([np.bincount(places, one, bins) for one in weights])


def calibration_error(sums: np.ndarray) -> float:
    """Mean distance of confidence and accuracy over the rows of each bin."""
    rows, confidence, right = sums
    return float(np.abs(confidence - right).sum() / max(rows.sum(), 1))


class Temperature(Study):
    """Logits of all rows with their classes, and the temperature by which they are divided for the least log loss.

    The task's net ends in logits; its loss is one that takes them.
    """

    kind = "temperature"
    takes_logits = True

    def __init__(self, task: Fields, studied: Studied) -> None:
        super().__init__(task, studied)
        self._logits: list[np.ndarray] = []
        self._targets: list[np.ndarray] = []

    def chunk(self, number: int, features: np.ndarray, targets: list[np.ndarray]) -> None:
        """Keep the logits of the rows."""
        self._studied.tick()
        (logits,) = self._studied.scorer.predict(features)
        self._logits.append(logits.astype(np.float32))
        self._targets.append(targets[0].astype(np.int32))

    def to_json(self) -> Any:
        """All logits and classes."""
        logits, targets = np.concatenate(self._logits), np.concatenate(self._targets)
        return {"units": logits.shape[1], "logits": written(logits), "targets": written(targets)}

    @classmethod
    def combined(cls, task: Fields, recipe: Recipe, parts: Sequence[Any]) -> Any:
        """The temperature, and log loss and calibration error without and with it."""
        values, targets = _collected(task, parts)
        values = _of_two(values)
        scale = fitted(values, targets)
        before, after = _quality(values, targets), _quality(values * scale, targets)
        return {"scale": scale, "rows": len(targets), "before": before, "after": after}


class Isotonic(Temperature):
    """Logits of all rows with their classes, and a rising function of them for each class, one against all others."""

    kind = "isotonic"

    @classmethod
    def combined(cls, task: Fields, recipe: Recipe, parts: Sequence[Any]) -> Any:
        """The ramps of each output, and log loss and calibration error without and with them."""
        values, targets = _collected(task, parts)
        _check_finite(values)
        if len(np.unique(targets)) < 2:
            raise InvalidData(
                f"got {len(targets)} rows of one class; allowed: rows of several classes",
                "take rows of all classes that the model was not trained on",
            )
        one = values.shape[1] == 1
        scores = values if one else _log_chances(values)
        pairs = enumerate(scores.T, 1 if one else 0)
        found = [_ramps(score, targets == place, one) for place, score in pairs]
        after = np.stack([ramps.at(each) for ramps, each in zip(found, scores.T, strict=True)], 1)
        return {
            "ramps": [[one.first, *(each.tolist() for each in one[1:])] for one in found],
            "rows": len(targets),
            "before": _quality(_of_two(values), targets),
            "after": _quality(_of_two(after), targets),
        }


def _ramps(scores: np.ndarray, truth: np.ndarray, one: bool) -> Ramps:
    """The logarithm of the isotonic probability of a class, or its logit, as a function of scores.

    No probability is nearer to 0 or 1 than half a row in all rows.
    """
    first, last, values = isotonic(scores, truth.astype(np.float64))
    least = 0.5 / len(scores)
    bounded = np.clip(values, least, 1 - least)
    return ramps_of(first, last, np.log(bounded) - (np.log1p(-bounded) if one else 0.0))


def _log_chances(logits: np.ndarray) -> np.ndarray:
    """Logarithms of the probabilities of a softmax."""
    top = logits - logits.max(axis=1, keepdims=True)
    found: np.ndarray = top - np.log(np.exp(top).sum(axis=1, keepdims=True))
    return found


def _collected(task: Fields, parts: Sequence[Any]) -> tuple[np.ndarray, np.ndarray]:
    """The logits and classes of all partitions."""
    logits = np.concatenate([read_array(part["logits"], "<f4") for part in parts])
    targets = np.concatenate([read_array(part["targets"], "<i4") for part in parts])
    values = logits.astype(np.float64).reshape(-1, parts[0]["units"])
    if task.flag("is_one") and values.shape[1] != 1:
        raise InvalidArgument(
            f"got a sigmoid for each of {values.shape[1]} outputs; allowed: one, or a softmax of several"
        )
    return values, targets


def _of_two(logits: np.ndarray) -> np.ndarray:
    """Logits of a softmax: a sigmoid of one logit is a softmax of it and 0."""
    if logits.shape[1] > 1:
        return logits
    return np.concatenate([np.zeros_like(logits), logits], axis=1)


def _check_finite(logits: np.ndarray) -> None:
    if not np.isfinite(logits).all():
        raise InvalidData("got outputs that are no numbers; allowed: a model that predicts numbers")


def fitted(logits: np.ndarray, targets: np.ndarray) -> float:
    """The factor of the logits with the least log loss, which is convex in it.

    Raises:
        InvalidData: there is none: the classes of all rows are told rightly, or by chance.
    """
    truth = logits[np.arange(len(logits)), targets].mean()

    def slope(scale: float) -> float:
        chances = of_logits(logits * scale, one_by_one=False)
        return float((chances * logits).sum(axis=1).mean() - truth)

    _check_finite(logits)
    if slope(_LEAST) >= 0:
        raise InvalidData(
            "got a model that is right no more often than by chance; allowed: one that has learnt something"
        )
    if slope(_MOST) <= 0:
        raise InvalidData(
            "got rows whose classes the model tells rightly, all of them, so that no temperature is best; allowed: rows "
            "some of which it takes for another class",
            "take rows that it was not trained on",
        )
    low, high = np.log(_LEAST), np.log(_MOST)
    for _ in range(_STEPS):
        middle = (low + high) / 2
        low, high = (middle, high) if slope(float(np.exp(middle))) < 0 else (low, middle)
    return float(np.exp((low + high) / 2))


def _quality(logits: np.ndarray, targets: np.ndarray) -> dict[str, float]:
    found = of_logits(logits, one_by_one=False)
    chosen, places = found.argmax(axis=1), np.arange(len(found))
    sums = binned(found[places, chosen], chosen == targets, BINS)
    top = logits.max(axis=1)
    total = top + np.log(np.exp(logits - top[:, np.newaxis]).sum(axis=1))
    loss = float((total - logits[places, targets]).mean())
    return {"loss": loss, "calibration_error": calibration_error(sums)}


class Threshold(Study):
    """Probabilities of a class for its rows and all others, and the threshold with the best value of a measure."""

    kind = "threshold"

    def __init__(self, task: Fields, studied: Studied) -> None:
        super().__init__(task, studied)
        self._class = task.integer("class", 0, 1)
        self._found: list[np.ndarray] = []
        self._truth: list[np.ndarray] = []

    def chunk(self, number: int, features: np.ndarray, targets: list[np.ndarray]) -> None:
        """Keep the probabilities of the rows."""
        self._studied.tick()
        self._found.append(probabilities_of(self._studied, features)[:, self._class])
        self._truth.append(targets[0] == self._class)

    def to_json(self) -> Any:
        """All probabilities, and whether each row is of the class."""
        found, truth = np.concatenate(self._found), np.concatenate(self._truth)
        return {"found": written(found), "truth": written(truth.astype(np.uint8))}

    @classmethod
    def combined(cls, task: Fields, recipe: Recipe, parts: Sequence[Any]) -> Any:
        """The threshold, what the measure is there, and the rows by truth and prediction."""
        found = np.concatenate([read_array(part["found"], "<f8") for part in parts])
        truth = np.concatenate([read_array(part["truth"], "u1") for part in parts]).astype(bool)
        costs = task.number("false_positive_cost"), task.number("false_negative_cost")
        measure = task.text("measure")
        if measure not in MEASURES:
            raise InvalidArgument(f"study: got {measure!r}; allowed: {', '.join(MEASURES)}")
        return best_threshold(found, truth, measure, costs)


def best_threshold(
    found: np.ndarray, truth: np.ndarray, measure: str, costs: tuple[float, float]
) -> dict[str, float]:
    """The threshold from which on a row is taken for the class, where a measure is best.

    Among equals the one nearest to 0.5; it lies in the middle between two probabilities.

    Args:
        found: probabilities of the class.
        truth: which rows are of it.
        measure: one of ``MEASURES``.
        costs: of a false positive and a false negative, for the measure ``cost``.

    Raises:
        InvalidData: all rows are of one class, or a probability is no number.
    """
    positives, negatives = int(truth.sum()), int((~truth).sum())
    if not positives or not negatives:
        raise InvalidData(
            f"got {positives} rows of the class and {negatives} others; allowed: rows of both"
        )
    if not np.isfinite(found).all():
        raise InvalidData(
            "got probabilities that are no numbers; allowed: a model that predicts numbers"
        )
    order = np.argsort(-found, kind="stable")
    values, hits = found[order], truth[order]
    ends = np.append(values[1:] != values[:-1], True)  # of rows with the same probability
    true = np.concatenate([[0], np.cumsum(hits)[ends]]).astype(np.float64)
    false = np.concatenate([[0], np.cumsum(~hits)[ends]]).astype(np.float64)
    levels = values[ends]
    middles = (levels[1:] + levels[:-1]) / 2
    middles = np.where(
        middles > levels[1:], middles, levels[:-1]
    )  # of neighbours there is no middle
    above = np.append(max(1.0, np.nextafter(levels[0], 2.0)), middles)
    thresholds = np.append(above, min(0.0, levels[-1]))
    reached = MEASURES[measure](true, false, positives - true, negatives - false, costs)
    best = np.flatnonzero(reached >= reached.max() - 1e-12)
    place = int(best[np.argmin(np.abs(thresholds[best] - 0.5))])
    sign = -1.0 if measure == COST else 1.0
    return {
        "threshold": float(thresholds[place]),
        "value": sign * float(reached[place]),
        "true_positives": int(true[place]),
        "false_positives": int(false[place]),
        "false_negatives": positives - int(true[place]),
        "true_negatives": negatives - int(false[place]),
    }


def _share(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    """Quotients, 0 where there is nothing to divide by."""
    return np.divide(part, whole, out=np.zeros_like(part), where=whole > 0)


def _mcc(tp: np.ndarray, fp: np.ndarray, fn: np.ndarray, tn: np.ndarray) -> np.ndarray:
    product = np.sqrt((tp + fp) * (tp + fn)) * np.sqrt((tn + fp) * (tn + fn))
    return _share(tp * tn - fp * fn, product)


COST = "cost"
# Functions of the arrays of true and false positives, false and true negatives, and the costs; more is better.
MEASURES = {
    "accuracy": lambda tp, fp, fn, tn, _: (tp + tn) / (tp + fp + fn + tn),
    "balanced_accuracy": lambda tp, fp, fn, tn, _: (_share(tp, tp + fn) + _share(tn, tn + fp)) / 2,
    "f1": lambda tp, fp, fn, tn, _: _share(2 * tp, 2 * tp + fp + fn),
    "mcc": lambda tp, fp, fn, tn, _: _mcc(tp, fp, fn, tn),
    "youden": lambda tp, fp, fn, tn, _: _share(tp, tp + fn) + _share(tn, tn + fp) - 1,
    COST: lambda tp, fp, fn, tn, costs: -(costs[0] * fp + costs[1] * fn) / (tp + fp + fn + tn),
}
