"""Loss and metrics of configurations over buffers, as sums that add up over partitions."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras.src import backend

from cerebro_db.configs.architectures.members import check_loss, check_members
from cerebro_db.configs.functions.losses import LossSpec
from cerebro_db.configs.functions.metrics import AVERAGE, MetricSpec, accuracy_class
from cerebro_db.configs.grids.outputs import OutputSpec
from cerebro_db.configs.grids.parameters import CompileParams
from cerebro_db.configs.names import bare_name, is_custom
from cerebro_db.errors import InvalidArgument
from cerebro_db.training.backends.tensorflow import models
from cerebro_db.training.backends.tensorflow.calls import (
    ModelInputs,
    TotalLoss,
    Traced,
    alone,
    assign,
    encode,
    listed,
)
from cerebro_db.training.backends.tensorflow.ids import EmbeddingIds
from cerebro_db.training.backends.tensorflow.loss_sums import kind_of, sums_of
from cerebro_db.training.backends.tensorflow.naming import named_model_variables
from cerebro_db.training.buffers import Shapes
from cerebro_db.training.functions import function_of
from cerebro_db.training.recipe import Recipe
from cerebro_db.training.scores.id_fault import IdsBeyond
from cerebro_db.training.scores.metric_views import MetricView, arguments_for, view_of
from cerebro_db.training.scores.sums import ROWS, LossPart, Partial
from cerebro_db.training.scores.targets import TargetFacts, encodings_for
from cerebro_db.training.state import State, check_fits, of_model

_BATCH_FLOATS = 4 * 1024 * 1024
_MAX_BATCH = 4096
_HALF = (tf.bfloat16, tf.float16)


@dataclass(frozen=True)
class Measure:
    """A Keras metric, what it is given, and the output that it is about."""

    metric: Any
    view: MetricView
    place: int
    average: str | None = None

    def result_of(self, arrays: tuple[np.ndarray, ...]) -> float:
        """The metric's value for given variables; a mean where it is one a class."""
        for variable, array in zip(self.metric.variables, arrays, strict=True):
            variable.assign(array)
        if self.average == "weighted":  # by the rows of each class, as their counts tell
            self.metric.label_weights = (
                self.metric.true_positives[0] + self.metric.false_negatives[0]
            )
        return float(np.mean(np.asarray(self.metric.result())))


def metrics_of(
    outputs: Sequence[OutputSpec], targets: TargetFacts, units: Sequence[int]
) -> list[Measure]:
    """The metrics of a configuration, those of the first output first."""
    measures = []
    given = zip(outputs, targets.each, units, strict=True)
    for place, (output, facts, size) in enumerate(given):
        for spec in output.metrics:
            view = view_of(spec, output.loss, facts, size)
            average = spec.all_arguments().get(AVERAGE) if spec.name == "AUC" else None
            metric = _make(spec, output.loss, view, facts, size)
            measures.append(Measure(metric, view, place, average))
    return measures


def _make(
    spec: MetricSpec, loss: LossSpec, view: MetricView, facts: TargetFacts, units: int
) -> Any:
    if is_custom(spec.name):
        return keras.metrics.MeanMetricWrapper(function_of(bare_name(spec.name)), name=spec.label)
    name = accuracy_class(loss.target, units) if spec.name == "accuracy" else spec.name
    given = tuple(arguments_for(spec, view, units).items())
    try:
        # Several thresholds are a list for Keras, which takes a tuple for a number.
        metric = getattr(keras.metrics, name)(**models.with_lists(given))
    except (TypeError, ValueError) as error:
        raise InvalidArgument(f"Keras refuses the metric {spec.name}: {error}") from None
    if not getattr(metric, "_built", True):  # some variables are made by the first update only
        stored = tf.zeros((1, *facts.shape), facts.dtype)
        metric.update_state(_truth(view, stored, facts), _viewed(view, tf.zeros((1, units))))
        metric.reset_state()
    return metric


def results_of(recipe: Recipe, total: Partial) -> list[float]:
    """The metrics of all outputs."""
    metrics = metrics_of(recipe.outputs, recipe.targets, total.units)
    return [metric.result_of(arrays) for metric, arrays in zip(metrics, total.metrics, strict=True)]


def _truth(view: MetricView, stored: Any, facts: TargetFacts) -> Any:
    """Stored targets as a metric takes them; traced into a program."""
    if view.positive is None:
        return encode(stored, view.encoding, facts)
    return tf.cast(tf.equal(stored, view.positive), tf.float32)[:, tf.newaxis]


def _viewed(view: MetricView, outputs: Any) -> Any:
    """Outputs of the model as a metric takes them; traced into a program."""
    if view.pair:
        second = tf.sigmoid(outputs) if view.logits else outputs
        return tf.concat([1.0 - second, second], axis=1)
    if view.logits:
        one_by_one = view.binary_loss or outputs.shape[-1] == 1
        outputs = tf.sigmoid(outputs) if one_by_one else tf.nn.softmax(outputs)
    if view.positive is None:
        return outputs
    if outputs.shape[-1] == 1:
        return outputs if view.positive == 1 else 1.0 - outputs
    return outputs[:, view.positive : view.positive + 1]


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
        self.model.compile()
        self._loss = TotalLoss(recipe.outputs)
        self._loss.attach(self.model)
        self._inputs = ModelInputs(self.model)
        self._ids = EmbeddingIds(self.model, self._inputs)
        self._units = models.units_of(self.model)
        wanted = [output.loss.target for output in recipe.outputs]
        self._loss_encodings = encodings_for(facts, wanted, self._units)
        self._measures = metrics_of(recipe.outputs, facts, self._units)
        self.batch_size = _batch_size(self.model)
        signature = (
            tf.TensorSpec((None, *self._inputs.row), tf.float32),
            *(tf.TensorSpec((None, *one.shape), tf.as_dtype(one.dtype)) for one in facts.each),
        )
        self._measure = Traced(tf.function(self._trace, input_signature=signature, autograph=False))
        # What the traced program found out about its sums.
        self._kinds: tuple[str, ...] = ()
        self._sizes: list[int] = []
        self._names = named_model_variables(self.model)
        self._expected = {name: variable.numpy() for name, variable in self._names.items()}

    @property
    def units(self) -> tuple[int, ...]:
        """Last dimension of each output of the model."""
        return self._units

    @property
    def shapes(self) -> Shapes:
        """The shape of a row of each input."""
        return self._inputs.shapes

    @property
    def row(self) -> tuple[int, ...]:
        """The shape of a row as a worker holds it."""
        return self._inputs.row

    @staticmethod
    def key(recipe: Recipe) -> tuple[Any, ...]:
        """Configurations with equal keys share a scorer."""
        params = recipe.compile_params
        penalties = (params.l1 is not None, params.l2 is not None)
        outputs = tuple(
            (
                (output.loss.name, repr(output.loss.arguments), output.weight),
                tuple((spec.name, repr(spec.arguments)) for spec in output.metrics),
            )
            for output in recipe.outputs
        )
        layers = (params.dropout, params.freeze, params.dtype_policy)
        return (recipe.architecture_id, outputs, layers, penalties, recipe.targets)

    def load(self, state: State, params: CompileParams) -> None:
        """Take the model's part of a state and the strengths of the penalties."""
        state = of_model(state)
        check_fits(state, self._expected)
        self._penalty.assign(params)
        for name, variable in self._names.items():
            assign(variable, state[name])

    def set_weights(self, weights: bytes) -> None:
        """Take weights as ``model_weights`` has them."""
        models.set_weights(self.model, weights)

    def check_training(self, recipe: Recipe) -> None:
        """Refuse a configuration that cannot be trained.

        Raises:
            InvalidArgument: patterns of an optimizer do not fit the weights, or a loss has none for each member.
            InvalidArchitecture: it has no members.
        """
        if recipe.compile_params.loss_per_member:
            check_members(recipe.architecture)
            for output in recipe.outputs:
                check_loss(output.loss)
        if recipe.compile_params.optimizer.parts:
            models.make_optimizer(recipe.compile_params.optimizer, self.model, recipe.architecture)

    def measure(self, features: np.ndarray, *targets: np.ndarray) -> Partial:
        """Score the rows of one buffer with what is loaded; the targets of each output.

        Raises:
            InvalidData: an id is beyond an embedding.
        """
        self.check_ids(features)
        self._measure.trace()
        sums = np.zeros(sum(self._sizes))
        for measure in self._measures:
            measure.metric.reset_state()
        for start in range(0, len(features), self.batch_size):
            stop = start + self.batch_size
            of_batch = self._measure(features[start:stop], *(one[start:stop] for one in targets))
            sums += np.concatenate([np.atleast_1d(value) for value in of_batch])
        metrics = tuple(
            tuple(variable.numpy() for variable in measure.metric.variables)
            for measure in self._measures
        )
        (loss_sum,), *losses = self._split(sums)
        if self._kinds:
            parts = tuple(map(LossPart, self._kinds, losses))
            return Partial(len(features), loss_sum, self._units, metrics, (), parts)
        of_each = tuple(one for (one,) in losses)
        return Partial(len(features), loss_sum, self._units, metrics, of_each)

    def _split(self, sums: np.ndarray) -> list[tuple[float, ...]]:
        """The sums of a pass, of the sizes that the traced program has."""
        ends = np.cumsum(self._sizes)[:-1]
        return [tuple(one.tolist()) for one in np.split(sums, ends)]

    def predict(self, features: np.ndarray) -> list[np.ndarray]:
        """The model's outputs, each ``float32[rows, ...]``.

        Raises:
            InvalidData: an id is beyond an embedding.
        """
        self.check_ids(features)
        found: list[list[np.ndarray]] = [[] for _ in self._units]
        for start in range(0, len(features), self.batch_size):
            outputs = self._forward(features[start : start + self.batch_size])
            for parts, output in zip(found, outputs, strict=True):
                parts.append(output.numpy())
        return [np.concatenate(parts) for parts in found]

    def check_ids(self, features: np.ndarray) -> None:
        """Refuse ids beyond an embedding."""
        if (found := self._ids.fault(features)) is not None:
            raise IdsBeyond(*found)

    def predict_row(self, features: np.ndarray) -> list[np.ndarray]:
        """The outputs for one row, without the steps that find out what a call is like."""
        self.check_ids(features)
        return [output.numpy() for output in self._of_one_row(tf.constant(features))]

    @functools.cached_property
    def _of_one_row(self) -> Any:
        return self._forward.get_concrete_function()

    # -- inside ----------------------------------------------------------------
    @functools.cached_property
    def _forward(self) -> Any:
        return tf.function(
            lambda features: self._outputs(self._inputs.split(features)),
            input_signature=[tf.TensorSpec((None, *self._inputs.row), tf.float32)],
            autograph=False,
        )

    def _outputs(self, inputs: Any) -> list[Any]:
        """Outputs of the model, one after another."""
        return [_whole(output) for output in listed(self.model(inputs, training=False))]

    def _trace(self, features: Any, *stored: Any) -> list[Any]:
        """The loss of a batch as sums, and the updates of the metrics.

        The total loss and of several outputs that of each, times the rows. Where one of them is no mean
        over the rows: the penalties times the rows, then the sums of the loss of each output.
        """
        inputs = self._inputs.split(features)
        outputs, facts = self._outputs(inputs), self._facts.each
        targets = [
            encode(*of_one) for of_one in zip(stored, self._loss_encodings, facts, strict=True)
        ]
        rows = tf.cast(tf.shape(features)[0], tf.float32)
        sums = self._loss_sums(inputs, targets, outputs, rows)
        for measure in self._measures:
            place, view = measure.place, measure.view
            truth = _truth(view, stored[place], facts[place])
            measure.metric.update_state(truth, _viewed(view, outputs[place]))
        return sums

    def _loss_sums(
        self, inputs: Any, targets: list[Any], outputs: list[Any], rows: Any
    ) -> list[Any]:
        each = list(zip(self._loss.one_by_one, targets, outputs, strict=True))
        kinds = tuple(kind_of(*one) for one in each)
        if set(kinds) == {ROWS}:
            self._kinds = ()
            truth, found = alone(targets), alone(outputs)
            losses = [self.model.compute_loss(x=inputs, y=truth, y_pred=found, training=False)]
            if len(self._units) > 1:
                losses += self._loss.each(truth, found)
            self._sizes = [1] * len(losses)
            return [loss * rows for loss in losses]
        self._kinds = kinds
        penalty = _sum(self.model.losses) * rows
        parts = [sums_of(kind, *one) for kind, one in zip(kinds, each, strict=True)]
        joined = [tf.concat([tf.reshape(one, (-1,)) for one in sums], 0) for sums in parts]
        self._sizes = [1, *(int(one.shape[0]) for one in joined)]
        return [penalty, *joined]


def _sum(losses: Sequence[Any]) -> Any:
    """The sum of the penalties of a model."""
    return sum((tf.reduce_sum(tf.cast(loss, tf.float32)) for loss in losses), tf.constant(0.0))


def _whole(outputs: Any) -> Any:
    """Outputs in a type that NumPy computes with, and their mask."""
    if outputs.dtype not in _HALF:
        return outputs
    whole = tf.cast(outputs, tf.float32)
    backend.set_keras_mask(whole, backend.get_keras_mask(outputs))
    return whole


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
