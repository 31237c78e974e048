"""Metrics of Keras that are made of counts: of rows at thresholds, of classes, of pairs of classes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

Arguments = Mapping[str, Any]
Arrays = Sequence[np.ndarray]
Sums = Callable[[np.ndarray, np.ndarray, Arguments], Arrays]
Value = Callable[[Arrays, Arguments], float]
_SMALL = 1e-7


def _ratio(above: Any, below: Any) -> np.ndarray:
    """A quotient, 0 where nothing is below."""
    found: np.ndarray = np.divide(
        above, below, out=np.zeros(np.broadcast(above, below).shape), where=np.asarray(below) != 0
    )
    return found


def _at_thresholds(
    truth: np.ndarray, outputs: np.ndarray, thresholds: np.ndarray, labels: bool
) -> Arrays:
    """True positives, false positives, true negatives and false negatives at each threshold."""
    columns = outputs.shape[-1] if labels else 1
    found, wanted = (one.reshape(-1, columns).astype(np.float64) for one in (outputs, truth))
    positive = wanted > 0.5
    above = found[None] > thresholds[:, None, None]
    counted = [above & positive, above & ~positive, ~above & ~positive, ~above & positive]
    sums = [one.sum(axis=1, dtype=np.float64) for one in counted]
    return sums if labels else [one[:, 0] for one in sums]


def _even(count: int) -> np.ndarray:
    middle = np.arange(1, count - 1) / (count - 1)
    return np.concatenate([[-_SMALL], middle, [1 + _SMALL]])


# -- areas ---------------------------------------------------------------------------------
def _area_sums(truth: np.ndarray, outputs: np.ndarray, given: Arguments) -> Arrays:
    chosen = given.get("thresholds")
    thresholds = _even(given["num_thresholds"])
    if chosen is not None:
        thresholds = np.array([-_SMALL, *sorted(_listed(chosen)), 1 + _SMALL])
    if given.get("from_logits"):
        outputs = 0.5 * (1 + np.tanh(0.5 * outputs))
    return _at_thresholds(truth, outputs, thresholds, bool(given.get("multi_label")))


def _area(arrays: Arrays, given: Arguments) -> float:
    right, wrong, rejected, missed = arrays
    if given["curve"] == "PR" and given["summation_method"] == "interpolation":
        return _averaged(_precision_steps(right, wrong, missed).sum(axis=0), arrays, given)
    recall = _ratio(right, right + missed)
    x, y = _ratio(wrong, wrong + rejected), recall
    if given["curve"] == "PR":
        x, y = recall, _ratio(right, right + wrong)
    heights = {
        "interpolation": (y[:-1] + y[1:]) / 2,
        "minoring": np.minimum(y[:-1], y[1:]),
        "majoring": np.maximum(y[:-1], y[1:]),
    }[given["summation_method"]]
    return _averaged(((x[:-1] - x[1:]) * heights).sum(axis=0), arrays, given)


def _precision_steps(right: np.ndarray, wrong: np.ndarray, missed: np.ndarray) -> np.ndarray:
    """Areas under precision and recall between thresholds, as Davis and Goadrich interpolate them."""
    chosen = right + wrong
    slope = _ratio(right[:-1] - right[1:], np.maximum(chosen[:-1] - chosen[1:], 0))
    start = right[1:] - slope * chosen[1:]
    both = (chosen[:-1] > 0) & (chosen[1:] > 0)
    ratio = np.where(both, _ratio(chosen[:-1], chosen[1:]), 1.0)
    steps = slope * (right[:-1] - right[1:] + start * np.log(ratio))
    return _ratio(steps, np.maximum(right[1:] + missed[1:], 0))


def _averaged(areas: np.ndarray, arrays: Arrays, given: Arguments) -> float:
    """The mean of the areas of several labels, by their weights if there are any."""
    if np.ndim(areas) == 0:
        return float(areas)
    weights = given.get("label_weights")
    if given.get("average") == "weighted":
        weights = arrays[0][0] + arrays[3][0]
    return float(np.average(areas, weights=None if weights is None else np.asarray(weights)))


# -- counts at thresholds --------------------------------------------------------------------
def _listed(value: Any) -> Sequence[float]:
    return list(value) if isinstance(value, list | tuple) else [value]


def _chosen_sums(truth: np.ndarray, outputs: np.ndarray, given: Arguments) -> Arrays:
    """Counts at given thresholds, of the first outputs or of one class where that is wanted."""
    top, column = given.get("top_k"), given.get("class_id")
    thresholds = given.get("thresholds")
    if thresholds is None:
        thresholds = -np.inf if top else 0.5
    if top:
        least = np.partition(outputs, -top, axis=-1)[..., -top, None]
        outputs = np.where(outputs >= least, outputs, -np.inf)
    if column is not None:
        truth, outputs = truth[..., column], outputs[..., column]
    return _at_thresholds(truth, outputs, np.asarray(_listed(thresholds), np.float64), False)


def _count(place: int) -> tuple[Sums, Value]:
    return _chosen_sums, lambda arrays, given: float(np.mean(arrays[place]))


def _precision(arrays: Arrays, given: Arguments) -> float:
    return float(np.mean(_ratio(arrays[0], arrays[0] + arrays[1])))


def _recall(arrays: Arrays, given: Arguments) -> float:
    return float(np.mean(_ratio(arrays[0], arrays[0] + arrays[3])))


# -- one rate at another ----------------------------------------------------------------------
def _spread_sums(truth: np.ndarray, outputs: np.ndarray, given: Arguments) -> Arrays:
    column = given.get("class_id")
    if column is not None:
        truth, outputs = truth[..., column], outputs[..., column]
    count = given["num_thresholds"]
    thresholds = np.array([0.5]) if count == 1 else _even(count)
    return _at_thresholds(truth, outputs, thresholds, False)


def _rates(arrays: Arrays) -> dict[str, np.ndarray]:
    right, wrong, rejected, missed = arrays
    return {
        "precision": _ratio(right, right + wrong),
        "recall": _ratio(right, right + missed),
        "sensitivity": _ratio(right, right + missed),
        "specificity": _ratio(rejected, rejected + wrong),
    }


def _at(wanted: str, bound: str) -> tuple[Sums, Value]:
    """The largest rate where another one is at least what is given."""

    def value(arrays: Arrays, given: Arguments) -> float:
        rates = _rates(arrays)
        return float(rates[wanted][rates[bound] >= given[bound]].max(initial=0.0))

    return _spread_sums, value


# -- F scores -----------------------------------------------------------------------------------
def _f_sums(truth: np.ndarray, outputs: np.ndarray, given: Arguments) -> Arrays:
    threshold = given.get("threshold")
    if threshold is None:
        found = (outputs >= outputs.max(axis=-1, keepdims=True)) & (np.abs(outputs) > 1e-9)
    else:
        found = outputs > threshold
    wanted = truth > 0.5
    axis = None if given.get("average") == "micro" else 0
    counted = (found & wanted, found & ~wanted, ~found & wanted)
    return [np.asarray(one.sum(axis=axis, dtype=np.float64)) for one in counted]


def _f_score(arrays: Arrays, given: Arguments) -> float:
    right, wrong, missed = arrays
    square = float(given.get("beta") or 1.0) ** 2
    precision, recall = _ratio(right, right + wrong), _ratio(right, right + missed)
    scores = (1 + square) * _ratio(precision * recall, square * precision + recall)
    if given.get("average") == "weighted":
        return float(_ratio((scores * (right + missed)).sum(), (right + missed).sum()))
    return float(np.mean(scores))


# -- overlaps -------------------------------------------------------------------------------------
def _ids(values: np.ndarray, sparse: bool) -> np.ndarray:
    return (values if sparse else values.argmax(axis=-1)).reshape(-1).astype(np.int64)


def _pairs(truth: np.ndarray, found: np.ndarray, given: Arguments) -> Arrays:
    """A matrix of counts, of targets by outputs."""
    count, ignored = given["num_classes"], given.get("ignore_class")
    kept = (truth >= 0) & (truth < count) & (found >= 0) & (found < count)
    if ignored is not None:
        kept &= truth != ignored
    flat = np.bincount(truth[kept] * count + found[kept], minlength=count * count)
    return [flat.reshape(count, count).astype(np.float64)]


def _overlap_sums(sparse_truth: bool) -> Sums:
    def sums(truth: np.ndarray, outputs: np.ndarray, given: Arguments) -> Arrays:
        sparse = given.get("sparse_y_pred", sparse_truth) and outputs.shape[-1] == 1
        return _pairs(_ids(truth, sparse_truth), _ids(outputs, bool(sparse)), given)

    return sums


def _binary_sums(truth: np.ndarray, outputs: np.ndarray, given: Arguments) -> Arrays:
    found = (outputs >= given["threshold"]).reshape(-1).astype(np.int64)
    return _pairs(_ids(truth, True), found, {"num_classes": 2})


def _overlap(arrays: Arrays, given: Arguments) -> float:
    """The mean overlap of classes: those that are chosen, of all that occur."""
    (matrix,) = arrays
    both = np.diag(matrix)
    either = matrix.sum(axis=0) + matrix.sum(axis=1) - both
    chosen = given.get("target_class_ids")
    places = range(len(both)) if chosen is None else [int(one) for one in _listed(chosen)]
    found = [both[place] / either[place] for place in places if either[place] > 0]
    return float(np.mean(found)) if found else 0.0


KINDS: Mapping[str, tuple[Sums, Value]] = {
    "AUC": (_area_sums, _area),
    "TruePositives": _count(0),
    "FalsePositives": _count(1),
    "TrueNegatives": _count(2),
    "FalseNegatives": _count(3),
    "Precision": (_chosen_sums, _precision),
    "Recall": (_chosen_sums, _recall),
    "PrecisionAtRecall": _at("precision", "recall"),
    "RecallAtPrecision": _at("recall", "precision"),
    "SensitivityAtSpecificity": _at("sensitivity", "specificity"),
    "SpecificityAtSensitivity": _at("specificity", "sensitivity"),
    "F1Score": (_f_sums, _f_score),
    "FBetaScore": (_f_sums, _f_score),
    "BinaryIoU": (_binary_sums, _overlap),
    "IoU": (_overlap_sums(True), _overlap),
    "MeanIoU": (_overlap_sums(True), _overlap),
    "OneHotIoU": (_overlap_sums(False), _overlap),
    "OneHotMeanIoU": (_overlap_sums(False), _overlap),
}
