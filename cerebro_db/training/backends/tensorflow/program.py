"""A compiled training loop: many mini-batches a call, for every configuration of its kind.

A program serves all configurations that share architecture, optimizer class,
loss and the presence of penalties and class weights. What differs between
them (learning rate and other scalars of the optimizer, strengths of
penalties, class weights, initial weights) are variables, and the batch size
is an argument; where XLA compiles the loop, that is a part of the program.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from cerebro_db.configs.grids.parameters import BALANCED, CompileParams, FitParams
from cerebro_db.training.backends.tensorflow import groups, models
from cerebro_db.training.backends.tensorflow.calls import (
    Members,
    ModelInputs,
    TotalLoss,
    Traced,
    alone,
    assign,
    encode,
    read,
)
from cerebro_db.training.backends.tensorflow.ids import EmbeddingIds
from cerebro_db.training.backends.tensorflow.naming import (
    copies_of_weights,
    named_model_variables,
    named_variables,
)
from cerebro_db.training.backends.tensorflow.scalars import make_variable, scalars_of
from cerebro_db.training.mixing import Partners
from cerebro_db.training.recipe import Recipe
from cerebro_db.training.scores.id_fault import IdsBeyond
from cerebro_db.training.scores.targets import TargetFacts, encodings_for, parts
from cerebro_db.training.state import (
    AVERAGES,
    LEARNING_RATE,
    OPTIMIZER,
    WEIGHTS,
    State,
    check_fits,
    of_model,
)

_STEPS = "/iteration"


class Program:
    """A model, its optimizer and the compiled loop over mini-batches.

    Args:
        recipe: of the first configuration that it serves.
    """

    def __init__(self, recipe: Recipe) -> None:
        self._prepared: tuple[CompileParams, FitParams] | None = None
        self._batch_size = recipe.fit_params.batch_size
        self._steps_per_call = recipe.steps_per_call
        self._jit = recipe.jit
        self._mixes = recipe.fit_params.mixup is not None
        self._targets = recipe.targets
        params = recipe.compile_params
        self.model = self._build(recipe, 0)
        self._members = Members(self.model) if params.loss_per_member else None
        self._penalty = models.Penalty()
        self._penalty.attach(self.model, params)
        inner = models.make_optimizer(params.optimizer, self.model, recipe.architecture)
        groups.attach(inner, self.model, params.optimizer, params.param_groups, recipe.architecture)
        # Keras does so by itself, but for models that were read from JSON.
        scaled = models.scales_loss(self.model)
        optimizer = keras.optimizers.LossScaleOptimizer(inner) if scaled else inner
        self.model.compile(optimizer=optimizer)
        TotalLoss(recipe.outputs).attach(self.model)
        optimizer.build(self.model.trainable_variables)
        self._scalars = make_variable(inner)
        self._class_weights = self._make_class_weights(recipe.fit_params)
        self._variables = named_variables(self.model, optimizer)
        self._copies = copies_of_weights(self.model, optimizer)
        self._fresh = {name: _fresh(name, v.numpy()) for name, v in self._variables.items()}
        self._inputs = ModelInputs(self.model)
        self._ids = EmbeddingIds(self.model, self._inputs)
        wanted = [output.loss.target for output in recipe.outputs]
        self._encodings = encodings_for(recipe.targets, wanted, models.units_of(self.model))
        self._compile()

    @staticmethod
    def key(recipe: Recipe) -> tuple[Any, ...]:
        """Configurations with equal keys share a program."""
        params, fit = recipe.compile_params, recipe.fit_params
        return (
            recipe.architecture_id,
            scalars_of(params.optimizer).key,
            groups.key(params.optimizer, params.param_groups),
            tuple((o.loss.name, repr(o.loss.arguments), o.weight) for o in recipe.outputs),
            (params.dropout, params.freeze, params.dtype_policy, params.loss_per_member),
            params.l1 is not None,
            params.l2 is not None,
            fit.class_weight is not None,
            fit.mixup is not None,
            recipe.targets,
            (fit.batch_size, recipe.steps_per_call) if recipe.jit else None,
        )

    # -- state -----------------------------------------------------------------
    def prepare(self, params: CompileParams, fit: FitParams) -> None:
        """Take the scalars of a configuration, where they are not those of the last one."""
        if (params, fit) == self._prepared:
            return
        self._prepared = None
        self._batch_size = fit.batch_size
        for name, number in scalars_of(params.optimizer).numbers.items():
            self._scalars[name].assign(number)
        self._penalty.assign(params)
        if self._class_weights is not None:
            self._class_weights.assign(_class_weight_vector(fit, self._targets))
        self._prepared = (params, fit)

    def initial_state(self, recipe: Recipe, seed: int, weights: bytes | None) -> State:
        """The state before the first hop: from the seed, or from given weights."""
        model = self._build(recipe, seed)
        if weights is not None:
            models.set_weights(model, weights)
        state = dict(self._fresh)
        fresh = named_model_variables(model)
        state.update({name: variable.numpy() for name, variable in fresh.items()})
        state.update({copy: state[name] for copy, name in self._copies.items()})
        return self.with_learning_rate(state, recipe)

    def taken_over(self, state: State, recipe: Recipe) -> State:
        """The state of an earlier run as a configuration starts from it now.

        It takes the learning rate that is asked for now. Where the optimizer is another one, that
        begins anew, and the model goes on.
        """
        adapted = self.with_learning_rate(state, recipe)
        ours, theirs = _optimizer_part(self._fresh), _optimizer_part(adapted)
        if _described(ours) == _described(theirs):
            return adapted
        model = of_model(state)
        begun = {copy: model[name] for copy, name in self._copies.items()}
        return self.with_learning_rate(model | ours | begun, recipe)

    def with_new_optimizer(self, state: State, recipe: Recipe) -> State:
        """The state with an optimizer that begins anew.

        It keeps its learning rate, and the count of steps where a schedule gives the rate by that.
        """
        kept = {
            name: array
            for name, array in state.items()
            if not name.startswith(OPTIMIZER) or name == LEARNING_RATE
        }
        if recipe.compile_params.optimizer.schedule is not None:
            kept |= {name: state[name] for name in state if name.endswith(_STEPS)}
        begun = {copy: state[name] for copy, name in self._copies.items()}
        fresh = {name: self._fresh[name] for name in state if name in self._fresh}
        return {name: (fresh | begun | kept)[name] for name in state}

    def with_learning_rate(self, state: State, recipe: Recipe) -> State:
        """A state with the learning rate that a configuration starts with.

        A schedule gives the rate by the steps that were made, which the state counts.
        """
        rate = scalars_of(recipe.compile_params.optimizer).learning_rate
        if rate is None:
            return {n: array for n, array in state.items() if n != LEARNING_RATE}
        return state | {LEARNING_RATE: np.asarray(rate, np.float32)}

    def load(self, state: State) -> None:
        """Take over a state.

        Raises:
            InvalidState: names, shapes or dtypes are not those of the program.
        """
        check_fits(state, self._fresh)
        for name, variable in self._variables.items():
            assign(variable, state[name])

    def save(self) -> State:
        """The state as it is now."""
        return {name: read(variable) for name, variable in self._variables.items()}

    # -- training ----------------------------------------------------------------
    def check_ids(self, features: np.ndarray) -> None:
        """Refuse ids beyond an embedding, for which compiled programs take some other row of it.

        Raises:
            IdsBeyond: with the first row that has one.
        """
        if (found := self._ids.fault(features)) is not None:
            raise IdsBeyond(*found)

    def train(
        self, features: np.ndarray, targets: np.ndarray, partners: Partners | None = None
    ) -> float:
        """Train on rows in their order, batch by batch.

        Args:
            features: ``float32[rows, ...]``; rows of one call at most.
            targets: ``int32[rows]`` ids or ``float32[rows, ...]``, or records with weights.
            partners: of rows that are mixed, where the fit parameters say so.

        Returns:
            The sum over the rows of the loss of their batch.
        """
        data = self._data_of(features, targets)
        if partners is not None:
            data = (*data, *self._data_of(features, partners.targets)[1:], partners.shares)
        if self._jit:
            return self._train_compiled(data)
        return float(self._loop(*data, self._batch_size))

    def _data_of(self, features: np.ndarray, targets: np.ndarray) -> tuple[np.ndarray, ...]:
        """Features, targets of each output, and weights of rows if there are any."""
        data: tuple[np.ndarray, ...] = (features, *parts(targets))
        return (*data, targets["weight"]) if self._targets.weighted else data

    def _train_compiled(self, data: tuple[np.ndarray, ...]) -> float:
        """Train on rows in a compiled loop of static shapes, padded with zeros that it does not reach.

        What is no whole batch is trained by a function of its own.
        """
        steps, rest = divmod(len(data[0]), self._batch_size)
        total = 0.0
        if steps:
            full, whole = steps * self._batch_size, self._steps_per_call * self._batch_size
            total += float(self._loop(*(_padded(part[:full], whole) for part in data), steps))
        if rest:
            total += float(self._rest(*(part[-rest:] for part in data)))
        return total

    # -- steps that are made together with others --------------------------------------
    def gradients(self, features: np.ndarray, targets: np.ndarray) -> tuple[float, np.ndarray]:
        """The loss of a batch, and its gradients one after another, ``float32[gradient_size]``."""
        loss, flat = self._gradients_of(*self._data_of(features, targets))
        return float(loss), flat.numpy()

    def apply(self, gradients: np.ndarray) -> None:
        """Have the optimizer take a step by gradients that lie one after another."""
        self._step_by(gradients)

    # -- weights that a server holds ---------------------------------------------------
    def updated(self, gradients: np.ndarray) -> np.ndarray:
        """Apply gradients and return the flat weights."""
        found: np.ndarray = self._updated(gradients).numpy()
        return found

    def weights(self) -> np.ndarray:
        """The weights that are trained, one after another: ``float32[gradient_size]``."""
        found: np.ndarray = self._flat_weights().numpy()
        return found

    def take(self, weights: np.ndarray) -> None:
        """Take over weights that are trained."""
        self._take_weights(weights)

    @functools.cached_property
    def trained(self) -> frozenset[str]:
        """The names, in a state, of the weights that are trained."""
        trained = {id(variable) for variable in self.model.trainable_weights}
        return frozenset(name for name, one in self._variables.items() if id(one) in trained)

    @functools.cached_property
    def gradient_size(self) -> int:
        """Numbers of all gradients; one, a zero, where nothing trains."""
        return max(1, sum(math.prod(weight.shape) for weight in self.model.trainable_weights))

    @functools.cached_property
    def untrained(self) -> Mapping[str, int]:
        """The floats of the model that no gradient changes, such as averages of batches: name and size."""
        return {
            name: self._fresh[name].size
            for name in self._variables
            if name.startswith(WEIGHTS)
            and name not in self.trained
            and self._fresh[name].dtype == np.float32
        }

    # -- inside --------------------------------------------------------------------
    def _compile(self) -> None:
        relaxed = self._signature(None)
        count = tf.TensorSpec((), tf.int32)
        if not self._jit:
            self._loop = self._traced(self._trace_loop, (*relaxed, count))
            return
        fixed = self._signature(self._steps_per_call * self._batch_size)
        self._loop = self._traced(self._trace_compiled, (*fixed, count), jit_compile=True)
        self._rest = self._traced(self._trace_batch, relaxed)

    def _signature(self, rows: int | None) -> tuple[Any, ...]:
        number = tf.TensorSpec((rows,), tf.float32)
        targets = [
            *(
                tf.TensorSpec((rows, *one.shape), tf.as_dtype(one.dtype))
                for one in self._targets.each
            ),
            *((number,) if self._targets.weighted else ()),
        ]
        partners = (*targets, number) if self._mixes else ()
        return (tf.TensorSpec((rows, *self._inputs.row), tf.float32), *targets, *partners)

    def _traced(self, trace: Any, signature: tuple[Any, ...], jit_compile: bool = False) -> Traced:
        """A traced function that reads the scalars of the optimizer once, before anything else."""

        def bound(*given: Any) -> Any:
            try:
                for scalar in self._scalars.values():
                    scalar.bind()
                return trace(*given)
            finally:
                for scalar in self._scalars.values():
                    scalar.release()

        return Traced(
            tf.function(bound, input_signature=signature, autograph=False, jit_compile=jit_compile)
        )

    @staticmethod
    def _build(recipe: Recipe, seed: int) -> keras.Model:
        params = recipe.compile_params
        return models.build(
            recipe.architecture, seed, params.dropout, params.freeze, params.dtype_policy
        )

    def _trace_loop(self, *given: Any) -> Any:
        """The sum over the rows of the loss of their batch; the last batch may be smaller."""
        *data, size = given
        rows = tf.shape(data[0])[0]

        def body(start: Any, total: Any) -> tuple[Any, Any]:
            stop = tf.minimum(start + size, rows)
            loss = self._trace_batch(*(_some_rows(part, start, stop) for part in data))
            return stop, total + loss

        begin = (tf.constant(0), tf.constant(0.0))
        _, total = tf.while_loop(
            lambda start, total: start < rows, body, begin, parallel_iterations=1
        )
        return total

    def _trace_compiled(self, *given: Any) -> Any:
        """The sum over the rows of so many whole batches of the loss of their batch."""
        *data, steps = given
        size = self._batch_size

        def body(step: Any, total: Any) -> tuple[Any, Any]:
            loss = self._step(*(_rows(part, step * size, size) for part in data))
            return step + 1, total + loss

        begin = (tf.constant(0), tf.constant(0.0))
        _, total = tf.while_loop(
            lambda step, total: step < steps, body, begin, parallel_iterations=1
        )
        return total * tf.cast(size, tf.float32)

    def _trace_batch(self, *data: Any) -> Any:
        return self._step(*data) * tf.cast(tf.shape(data[0])[0], tf.float32)

    def _step(self, features: Any, *data: Any) -> Any:
        """One step of SGD, as ``keras.Model.train_step`` does it, without the metrics."""
        loss, gradients = self._loss_and_gradients(features, *data)
        self._apply(gradients)
        return loss

    def _apply(self, gradients: list[Any]) -> None:
        """Has the optimizer take a step; of a model that is frozen there is none, as in Keras."""
        weights = self.model.trainable_weights
        if weights:
            self.model.optimizer.apply_gradients(zip(gradients, weights, strict=True))

    def _loss_and_gradients(self, features: Any, *data: Any) -> tuple[Any, list[Any]]:
        """The loss of a batch, and its gradients, scaled as the optimizer wants them."""
        model, inputs = self.model, self._inputs.split(features)
        share = data[-1] if self._mixes else None
        count = len(data) // 2 if self._mixes else len(data)
        truths = [self._truth(data[:count])]
        if self._mixes:
            truths.append(self._truth(data[count:-1]))
        with tf.GradientTape() as tape:
            if self._members is None:
                predictions = model(inputs, training=True)
            else:
                predictions = self._members(inputs)
            losses = [self._compared(inputs, predictions, *truth) for truth in truths]
            loss = losses[0]
            if share is not None:
                loss = share[0] * losses[0] + (1 - share[0]) * losses[1]
            scaled = model.optimizer.scale_loss(loss)
        return loss, tape.gradient(scaled, model.trainable_weights)

    def _truth(self, data: Sequence[Any]) -> tuple[list[Any], Any]:
        """The targets of a batch as losses take them, and the weights of its rows, if there are any."""
        stored = data[: len(self._encodings)]
        weights = data[-1] if self._targets.weighted else None
        targets = [
            encode(*of_one)
            for of_one in zip(stored, self._encodings, self._targets.each, strict=True)
        ]
        if self._class_weights is None:
            return targets, weights
        of_class = tf.gather(self._class_weights, stored[0])
        return targets, of_class if weights is None else of_class * weights

    def _compared(self, inputs: Any, predictions: Any, targets: list[Any], weights: Any) -> Any:
        """The loss of predictions, penalties included."""
        if self._members is not None:
            targets = self._members.repeated(targets)
            weights = None if weights is None else weights[:, tf.newaxis]
        return self.model.compute_loss(
            x=inputs,
            y=alone(targets),
            y_pred=predictions,
            sample_weight=weights,
            training=True,
        )

    @functools.cached_property
    def _gradients_of(self) -> Traced:
        return self._traced(self._trace_gradients, self._signature(None))

    @functools.cached_property
    def _step_by(self) -> Traced:
        signature = (tf.TensorSpec((self.gradient_size,), tf.float32),)
        return self._traced(self._trace_step_by, signature)

    def _trace_gradients(self, *data: Any) -> tuple[Any, Any]:
        loss, gradients = self._loss_and_gradients(*data)
        flat = [
            tf.zeros((math.prod(weight.shape),), tf.float32)
            if gradient is None
            else tf.reshape(tf.cast(tf.convert_to_tensor(gradient), tf.float32), (-1,))
            for gradient, weight in zip(gradients, self.model.trainable_weights, strict=True)
        ]
        return loss, _joined(flat)

    def _trace_step_by(self, flat: Any) -> Any:
        self._apply(self._apart(flat))
        return tf.constant(0)

    def _apart(self, flat: Any) -> list[Any]:
        """Parts of a flat array, in the shapes and types of the weights that are trained."""
        weights = self.model.trainable_weights
        if not weights:
            return []
        parts = tf.split(flat, [math.prod(weight.shape) for weight in weights])
        return [
            tf.cast(tf.reshape(part, weight.shape), weight.dtype)
            for part, weight in zip(parts, weights, strict=True)
        ]

    @functools.cached_property
    def _updated(self) -> Traced:
        def trace(flat: Any) -> Any:
            self._trace_step_by(flat)
            return self._trace_weights()

        return self._traced(trace, (tf.TensorSpec((self.gradient_size,), tf.float32),))

    @functools.cached_property
    def _flat_weights(self) -> Traced:
        return self._traced(self._trace_weights, ())

    @functools.cached_property
    def _take_weights(self) -> Traced:
        def trace(flat: Any) -> Any:
            weights = self.model.trainable_weights
            for weight, part in zip(weights, self._apart(flat), strict=True):
                weight.assign(part)
            return tf.constant(0)

        return self._traced(trace, (tf.TensorSpec((self.gradient_size,), tf.float32),))

    def _trace_weights(self) -> Any:
        weights = self.model.trainable_weights
        return _joined([tf.reshape(tf.cast(weight.value, tf.float32), (-1,)) for weight in weights])

    def _make_class_weights(self, fit: FitParams) -> Any:
        if fit.class_weight is None:
            return None
        vector = _class_weight_vector(fit, self._targets)
        return tf.Variable(vector, trainable=False)


def _fresh(name: str, array: np.ndarray) -> np.ndarray:
    """Value that a new state has under this name, without memory where all values are equal.

    A worker keeps many programs, and an optimizer's variables begin as zeros. The model's come
    from a seed: of these only shape and dtype matter.
    """
    if not name.startswith("optimizer/"):
        return np.broadcast_to(np.zeros((), array.dtype), array.shape)
    first = array.reshape(-1)[:1]
    if array.size and (array == first).all():
        return np.broadcast_to(first[0].copy(), array.shape)
    return array.copy()


def _joined(parts: list[Any]) -> Any:
    """Flat arrays one after another; a zero where there is none."""
    return tf.concat(parts, 0) if parts else tf.zeros((1,), tf.float32)


def _rows(tensor: Any, start: Any, size: int) -> Any:
    """``size`` rows from ``start``, of static shape."""
    tail = tensor.shape[1:]
    begin = tf.stack([start] + [0] * len(tail))
    return tf.ensure_shape(tf.slice(tensor, begin, [size, *tail]), [size, *tail])


def _some_rows(tensor: Any, start: Any, stop: Any) -> Any:
    """Rows to ``stop``, of a shape that only the running program knows, as in ``keras.Model.fit``.

    Where TensorFlow's optimizer of graphs knows the number of rows, it may add the input of a dense
    layer to its output within the product, and rounds otherwise than Keras.
    """
    tail = tensor.shape[1:]
    rows = tf.slice(tensor, tf.stack([start] + [0] * len(tail)), [stop - start, *tail])
    return tf.ensure_shape(rows, [None, *tail])


def _padded(rows: np.ndarray, count: int) -> np.ndarray:
    if len(rows) == count:
        return rows
    padded = np.zeros((count, *rows.shape[1:]), rows.dtype)
    padded[: len(rows)] = rows
    return padded


def _class_weight_vector(fit: FitParams, targets: TargetFacts) -> np.ndarray:
    if fit.class_weight == BALANCED:
        return np.asarray(targets.balanced, np.float32)
    vector = np.ones(targets.num_classes, np.float32)
    for class_id, weight in fit.class_weight or ():
        vector[class_id] = weight
    return vector


def _optimizer_part(state: State) -> State:
    return {n: array for n, array in state.items() if n.startswith((OPTIMIZER, AVERAGES))}


def _described(state: State) -> dict[str, tuple[Any, ...]]:
    return {name: (array.shape, array.dtype) for name, array in state.items()}
