"""Metrics of Keras in NumPy: the sums that each needs of some rows, and its value from the sums of all rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from cerebro_db.configs.functions.losses import LossSpec
from cerebro_db.configs.functions.metrics import OF_PROBABILITIES, MetricSpec, accuracy_class
from cerebro_db.configs.grids.outputs import OutputSpec
from cerebro_db.errors import InvalidArgument
from cerebro_db.training.backends.torch import counts, losses
from cerebro_db.training.scores.metric_views import MetricView, arguments_for, view_of
from cerebro_db.training.scores.probabilities import of_logits
from cerebro_db.training.scores.targets import TargetFacts

Arguments = Mapping[str, Any]
Arrays = Sequence[np.ndarray]


class Kind(NamedTuple):
    """A metric.

    Attributes:
        sums: from targets, outputs and arguments; they add up over rows.
        value: from these sums and the arguments.
    """

    sums: Callable[[np.ndarray, np.ndarray, Arguments], Arrays]
    value: Callable[[Arrays, Arguments], float]


class Measure(NamedTuple):
    """A metric of one output, and how it takes that output.

    Attributes:
        kind: of the metric.
        arguments: of it, defaults included.
        view: of the output.
        facts: of the target.
        units: last dimension of the output.
        place: of the output.
    """

    kind: Kind
    arguments: Arguments
    view: MetricView
    facts: TargetFacts
    units: int
    place: int

    def sums(self, stored: np.ndarray, outputs: np.ndarray) -> Arrays:
        """The sums of some rows."""
        truth = _truth(self.view, stored, self.facts)
        return self.kind.sums(truth, _viewed(self.view, outputs), self.arguments)

    def fresh(self) -> list[np.ndarray]:
        """The sums of no rows."""
        stored = np.zeros((1, *self.facts.shape), self.facts.dtype)
        found = self.sums(stored, np.zeros((1, self.units), np.float32))
        return [np.zeros_like(np.asarray(one, np.float64)) for one in found]

    def result(self, arrays: Arrays) -> float:
        """The value from the sums of all rows."""
        with np.errstate(all="ignore"):
            return float(self.kind.value(arrays, self.arguments))


def metrics_of(
    outputs: Sequence[OutputSpec], targets: TargetFacts, units: Sequence[int]
) -> list[Measure]:
    """The metrics of a configuration, those of the first output first.

    Raises:
        InvalidArgument: there is none such for PyTorch models.
    """
    given = enumerate(zip(outputs, targets.each, units, strict=True))
    return [
        _measure(spec, output.loss, facts, size, place)
        for place, (output, facts, size) in given
        for spec in output.metrics
    ]


def _measure(
    spec: MetricSpec, loss: LossSpec, facts: TargetFacts, units: int, place: int
) -> Measure:
    name = accuracy_class(loss.target, units) if spec.name == "accuracy" else spec.name
    kind = KINDS.get(name)
    if kind is None:
        raise InvalidArgument(
            f"metrics: got {spec.name} for a PyTorch model; allowed: accuracy, {', '.join(sorted(KINDS))}"
        )
    view = _view(spec, loss, facts, units, name)
    arguments = spec.all_arguments() | arguments_for(spec, view, units) | {"units": units}
    return Measure(kind, arguments, view, facts, units, place)


def _view(
    spec: MetricSpec, loss: LossSpec, facts: TargetFacts, units: int, name: str
) -> MetricView:
    """The view that Keras' metrics have, where the loss may say by its name that outputs are logits."""
    view = view_of(spec, loss, facts, units)
    given = spec.all_arguments()
    turned = name in OF_PROBABILITIES and not given.get("from_logits") and not given.get("top_k")
    logits = view.logits or (turned and losses.takes_logits(loss))
    return MetricView(view.encoding, view.positive, view.pair, logits, losses.kind_of(loss).binary)


def _truth(view: MetricView, stored: np.ndarray, facts: TargetFacts) -> np.ndarray:
    """Stored targets as a metric takes them."""
    if view.positive is not None:
        return (stored == view.positive).astype(np.float64)[:, None]
    if view.encoding == "onehot":
        return np.eye(facts.num_classes)[stored]
    if view.encoding == "binary":
        return stored.astype(np.float64)[:, None]
    if view.encoding == "ids":
        return stored[:, None]
    return (stored[:, None] if facts.shape == () else stored).astype(np.float64)


def _viewed(view: MetricView, outputs: np.ndarray) -> np.ndarray:
    """Outputs of the model as a metric takes them."""
    if view.pair:
        second = of_logits(outputs, one_by_one=True) if view.logits else outputs
        return np.concatenate([1.0 - second, second], axis=1)
    if view.logits:
        one_by_one = view.binary_loss or outputs.shape[-1] == 1
        outputs = of_logits(outputs, one_by_one=one_by_one)
    if view.positive is None:
        return outputs
    if outputs.shape[-1] == 1:
        return outputs if view.positive == 1 else 1.0 - outputs
    return outputs[:, view.positive : view.positive + 1]


# -- means ---------------------------------------------------------------------------------
def _mean(values: Callable[[np.ndarray, np.ndarray, Arguments], np.ndarray]) -> Kind:
    """A metric that is a mean of values."""

    def sums(truth: np.ndarray, outputs: np.ndarray, given: Arguments) -> Arrays:
        found = values(truth, outputs, given)
        return [np.asarray(found.sum(dtype=np.float64)), np.asarray(float(found.size))]

    return Kind(sums, lambda arrays, given: float(arrays[0] / max(float(arrays[1]), 1.0)))


def _like(name: str, sign: float = 1.0) -> Kind:
    """A mean of a loss."""

    def values(truth: np.ndarray, outputs: np.ndarray, given: Arguments) -> np.ndarray:
        ids = name.startswith("sparse")
        wanted = torch.from_numpy(np.ascontiguousarray(truth[:, 0] if ids else truth))
        found = torch.from_numpy(np.ascontiguousarray(outputs, np.float64))
        wanted = wanted.long() if ids else wanted.double()
        return sign * losses.KINDS[name].values(found, wanted, given, "none").numpy()

    return _mean(values)


def _binary_accuracy(truth: np.ndarray, outputs: np.ndarray, given: Arguments) -> np.ndarray:
    return np.mean(truth == (outputs > given.get("threshold", 0.5)), axis=-1)


def _sparse_accuracy(truth: np.ndarray, outputs: np.ndarray, given: Arguments) -> np.ndarray:
    ids = truth[..., 0] if truth.ndim == outputs.ndim and truth.shape[-1] == 1 else truth
    return ids == outputs.argmax(axis=-1)


def _accuracy(truth: np.ndarray, outputs: np.ndarray, given: Arguments) -> np.ndarray:
    return truth.argmax(axis=-1) == outputs.argmax(axis=-1)


def _top(ids: np.ndarray, outputs: np.ndarray, given: Arguments) -> np.ndarray:
    wanted = np.take_along_axis(outputs, ids.reshape(-1, 1).astype(np.int64), axis=1)
    return (outputs > wanted).sum(axis=1) < given["k"]


def _root(arrays: Arrays, given: Arguments) -> float:
    return float(np.sqrt(arrays[0] / max(float(arrays[1]), 1.0)))


# -- R2 --------------------------------------------------------------------------------------
def _r2_sums(truth: np.ndarray, outputs: np.ndarray, given: Arguments) -> Arrays:
    far = np.square(truth - outputs, dtype=np.float64)
    found = [one.reshape(len(truth), -1).sum(axis=0) for one in (np.square(truth), truth, far)]
    return [*found, np.asarray(float(len(truth)))]


def _r2(arrays: Arrays, given: Arguments) -> float:
    squares, sums, far, rows = arrays
    total = squares - sums * sums / rows
    scores = np.where(
        total > 0, 1 - far / np.where(total > 0, total, 1), np.where(far > 0, 0.0, 1.0)
    )
    if given.get("class_aggregation") == "variance_weighted_average":
        score = float((scores * total).sum() / total.sum())
    else:
        score = float(scores.mean())
    regressors = given.get("num_regressors") or 0
    if not regressors or regressors > rows - 1:
        return score
    return (
        0.0
        if regressors == rows - 1
        else 1 - (1 - score) * float((rows - 1) / (rows - regressors - 1))
    )


_SQUARE = _like("meansquarederror")
KINDS: Mapping[str, Kind] = {
    "BinaryAccuracy": _mean(_binary_accuracy),
    "CategoricalAccuracy": _mean(_accuracy),
    "SparseCategoricalAccuracy": _mean(_sparse_accuracy),
    "TopKCategoricalAccuracy": _mean(
        lambda truth, outputs, given: _top(truth.argmax(axis=-1), outputs, given)
    ),
    "SparseTopKCategoricalAccuracy": _mean(_top),
    "BinaryCrossentropy": _like("binarycrossentropy"),
    "CategoricalCrossentropy": _like("categoricalcrossentropy"),
    "SparseCategoricalCrossentropy": _like("sparsecategoricalcrossentropy"),
    "CategoricalHinge": _like("categoricalhinge"),
    "Hinge": _like("hinge"),
    "SquaredHinge": _like("squaredhinge"),
    "KLDivergence": _like("kldivergence"),
    "Poisson": _like("poisson"),
    "MeanAbsoluteError": _like("meanabsoluteerror"),
    "MeanAbsolutePercentageError": _like("meanabsolutepercentageerror"),
    "MeanSquaredError": _SQUARE,
    "MeanSquaredLogarithmicError": _like("meansquaredlogarithmicerror"),
    "RootMeanSquaredError": Kind(_SQUARE.sums, _root),
    "LogCoshError": _like("logcosh"),
    "CosineSimilarity": _like("cosinesimilarity", -1.0),
    "R2Score": Kind(_r2_sums, _r2),
    **{name: Kind(sums, value) for name, (sums, value) in counts.KINDS.items()},
}
