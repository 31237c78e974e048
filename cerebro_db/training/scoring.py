"""Loss and metrics of configurations over buffers, as sums that add up over partitions."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from cerebro_db.configs.losses import Target
from cerebro_db.configs.metrics import accuracy_class
from cerebro_db.configs.parameters import CompileParams, MetricSpec
from cerebro_db.errors import InvalidArgument
from cerebro_db.training import models
from cerebro_db.training.naming import named_model_variables
from cerebro_db.training.program import Recipe, assign, check_fits
from cerebro_db.training.state import State, of_model
from cerebro_db.training.targets import TargetFacts, encode, encoding_for

_BATCH_FLOATS = 4 * 1024 * 1024
_MAX_BATCH = 4096
_HALF = (tf.bfloat16, tf.float16)


@dataclass(frozen=True)
class Partial:
    """What one pass over some rows contributes.

    Attributes:
        rows: number of rows.
        loss_sum: sum over the rows of the loss of their batch.
        units: last dimension of the model's output.
        metrics: per metric its variables, which add up.
    """

    rows: int
    loss_sum: float
    units: int
    metrics: tuple[tuple[np.ndarray, ...], ...]

    def to_json(self) -> dict[str, Any]:
        """As plain values; float32 survives JSON exactly."""
        metrics = [[[a.dtype.name, a.tolist()] for a in arrays] for arrays in self.metrics]
        return {
            "rows": self.rows,
            "loss_sum": self.loss_sum,
            "units": self.units,
            "metrics": metrics,
        }

    @staticmethod
    def from_json(value: dict[str, Any]) -> Partial:
        """The reverse of :meth:`to_json`."""
        metrics = tuple(
            tuple(np.asarray(values, dtype) for dtype, values in arrays)
            for arrays in value["metrics"]
        )
        return Partial(int(value["rows"]), float(value["loss_sum"]), int(value["units"]), metrics)


@dataclass(frozen=True)
class Measure:
    """A Keras metric and the encoding of targets that it is given."""

    metric: Any
    encoding: str

    def result_of(self, arrays: tuple[np.ndarray, ...]) -> float:
        """The metric's value for given variables; a mean where it is one a class."""
        for variable, array in zip(self.metric.variables, arrays, strict=True):
            variable.assign(array)
        return float(np.mean(np.asarray(self.metric.result())))


def metrics_of(params: CompileParams, facts: TargetFacts, units: int) -> list[Measure]:
    """The metrics of a configuration."""
    measures = []
    for spec in params.metrics:
        wanted = params.loss.target if spec.target is Target.LOSS else spec.target
        encoding = encoding_for(facts, wanted, units)
        name = accuracy_class(params.loss.target, units) if spec.name == "accuracy" else spec.name
        measures.append(Measure(_make(name, spec, encoding, facts, units), encoding))
    return measures


def _make(name: str, spec: MetricSpec, encoding: str, facts: TargetFacts, units: int) -> Any:
    try:
        metric = getattr(keras.metrics, name)(**dict(spec.arguments))
    except (TypeError, ValueError) as error:
        raise InvalidArgument(f"Keras refuses the metric {spec.name}: {error}") from None
    if not getattr(metric, "_built", True):  # some variables are made by the first update only
        stored = tf.zeros((1, *facts.shape), facts.dtype)
        metric.update_state(encode(tf, stored, encoding, facts), tf.zeros((1, units)))
        metric.reset_state()
    return metric


class Scorer:
    """A model with its loss and metrics, for every configuration of its kind.

    Args:
        recipe: of the first configuration.
    """

    def __init__(self, recipe: Recipe) -> None:
        params, facts = recipe.compile_params, recipe.targets
        self._facts = facts
        self.model = models.build(
            recipe.architecture, 0, params.dropout, params.freeze, params.dtype_policy
        )
        self._penalty = models.Penalty()
        self._penalty.attach(self.model, params)
        self.model.compile(loss=models.make_loss(params.loss))
        self._units = int(self.model.outputs[0].shape[-1])
        self._loss_encoding = encoding_for(facts, params.loss.target, self._units)
        self._measures = metrics_of(params, facts, self._units)
        self.batch_size = _batch_size(self.model)
        signature = (
            tf.TensorSpec((None, *self.model.inputs[0].shape[1:]), tf.float32),
            tf.TensorSpec((None, *facts.shape), tf.as_dtype(facts.dtype)),
        )
        self._measure = tf.function(self._trace, input_signature=signature, autograph=False)
        self._names = named_model_variables(self.model)
        self._expected = {name: variable.numpy() for name, variable in self._names.items()}

    @property
    def units(self) -> int:
        """Last dimension of the model's output."""
        return self._units

    @staticmethod
    def key(recipe: Recipe) -> tuple[Any, ...]:
        """Configurations with equal keys share a scorer."""
        params = recipe.compile_params
        penalties = (params.l1 is not None, params.l2 is not None)
        metrics = tuple((spec.name, repr(spec.arguments)) for spec in params.metrics)
        loss = (params.loss.name, repr(params.loss.arguments))
        layers = (params.dropout, params.freeze, params.dtype_policy)
        return (recipe.architecture_id, loss, metrics, layers, penalties, recipe.targets)

    def load(self, state: State, params: CompileParams) -> None:
        """Take the model's part of a state and the strengths of the penalties."""
        state = of_model(state)
        check_fits(state, self._expected)
        self._penalty.assign(params)
        for name, variable in self._names.items():
            assign(variable, state[name])

    def measure(self, features: np.ndarray, targets: np.ndarray) -> Partial:
        """Score the rows of one buffer with what is loaded."""
        loss_sum = 0.0
        for measure in self._measures:
            measure.metric.reset_state()
        for start in range(0, len(features), self.batch_size):
            stop = start + self.batch_size
            loss_sum += float(self._measure(features[start:stop], targets[start:stop]))
        metrics = tuple(
            tuple(variable.numpy() for variable in measure.metric.variables)
            for measure in self._measures
        )
        return Partial(len(features), loss_sum, self._units, metrics)

    def predict(self, features: np.ndarray) -> np.ndarray:
        """The model's output, ``float32[rows, ...]``."""
        parts = []
        for start in range(0, len(features), self.batch_size):
            parts.append(self._forward(features[start : start + self.batch_size]).numpy())
        return np.concatenate(parts)

    def one_row(self) -> Any:
        """The same for a tensor of one row, without the steps that find out what a call is like."""
        return self._forward.get_concrete_function()

    # -- inside ----------------------------------------------------------------
    @functools.cached_property
    def _forward(self) -> Any:
        row = self.model.inputs[0].shape[1:]
        return tf.function(
            lambda features: _whole(self.model(features, training=False)),
            input_signature=[tf.TensorSpec((None, *row), tf.float32)],
            autograph=False,
        )

    def _trace(self, features: Any, stored: Any) -> Any:
        predictions = _whole(self.model(features, training=False))
        targets = encode(tf, stored, self._loss_encoding, self._facts)
        loss = self.model.compute_loss(x=features, y=targets, y_pred=predictions, training=False)
        for measure in self._measures:
            encoded = encode(tf, stored, measure.encoding, self._facts)
            measure.metric.update_state(encoded, predictions)
        return loss * tf.cast(tf.shape(features)[0], tf.float32)


def _whole(outputs: Any) -> Any:
    """Outputs in a type that NumPy computes with."""
    return tf.cast(outputs, tf.float32) if outputs.dtype in _HALF else outputs


def add_partials(partials: Sequence[Partial]) -> Partial:
    """The sum of passes, added in the order given."""
    total = partials[0]
    for partial in partials[1:]:
        metrics = tuple(
            tuple(np.asarray(a + b, a.dtype) for a, b in zip(ours, theirs, strict=True))
            for ours, theirs in zip(total.metrics, partial.metrics, strict=True)
        )
        loss_sum = total.loss_sum + partial.loss_sum
        total = Partial(total.rows + partial.rows, loss_sum, total.units, metrics)
    return total


def _batch_size(model: keras.Model) -> int:
    """Rows of one scoring batch: a power of two whose largest activation stays small."""
    widest = 1
    for layer in model.layers:
        for tensor in [t for t in _outputs(layer) if t is not None]:
            widest = max(widest, int(np.prod([size or 1 for size in tensor.shape[1:]])))
    fitting = max(1, _BATCH_FLOATS // widest)
    return int(min(_MAX_BATCH, 2 ** int(np.log2(fitting))))


def _outputs(layer: Any) -> list[Any]:
    try:
        output = layer.output
    except (AttributeError, ValueError):
        return []
    return list(output) if isinstance(output, list | tuple) else [output]
