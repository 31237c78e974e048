"""Keras models from checked architectures: built, described, regularised, initialised."""

from __future__ import annotations

import functools
import math
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras.src.backend.common import global_state
from keras.src.trainers import compile_utils

from cerebro_db.configs.architectures.architecture import EXPRESSION, is_expression, with_dropout
from cerebro_db.configs.architectures.freezing import with_frozen, with_policy
from cerebro_db.configs.architectures.memory import ArchitectureFacts
from cerebro_db.configs.arguments import Arguments
from cerebro_db.configs.functions.expressions import parse_expression
from cerebro_db.configs.functions.losses import LossSpec
from cerebro_db.configs.functions.optimizers import OPTIMIZER_MAP, OptimizerSpec, ScheduleSpec
from cerebro_db.configs.grids.parameters import CompileParams
from cerebro_db.configs.messages import shown
from cerebro_db.configs.names import bare_name, is_custom
from cerebro_db.errors import InvalidArchitecture, InvalidArgument, InvalidState
from cerebro_db.training.backends.tensorflow.expressions import function_from
from cerebro_db.training.causes import short
from cerebro_db.training.functions import function_of

_SEQUENTIAL = "cerebro>Sequential"
_SCOPES = "name_scope_stack"  # where Keras keeps the names of the layers that it is inside of


def made(config: Mapping[str, Any]) -> keras.Model:
    """A model whose shapes are known, from a checked architecture.

    Raises:
        InvalidArchitecture: Keras refuses the architecture, or it has no input shape.
    """
    found: dict[str, Any] = {_SEQUENTIAL: _Sequential}
    copied = _with_own_sequential(config, found)
    try:
        with _left_scopes():
            model = keras.saving.deserialize_keras_object(copied, found)
    except RecursionError:
        raise InvalidArchitecture(
            "Keras cannot build the architecture: too many layers follow one another",
            hint="take some of the layers away",
        ) from None
    except Exception as error:  # whatever Keras raises is about the architecture
        raise InvalidArchitecture(f"Keras cannot build the architecture: {short(error)}") from None
    if not model.built or not model.inputs:
        raise InvalidArchitecture(
            "got an architecture without an input shape",
            hint="start the model with keras.Input(...)",
        )
    for layer in model._flatten_layers(include_self=False, recursive=True):
        if isinstance(layer, keras.layers.Normalization) and layer.input_mean is None:
            layer.call = functools.partial(_normalized, layer)
    return model


def _normalized(layer: keras.layers.Normalization, inputs: Any) -> Any:
    """Computes an adapted layer with the weights that it has, and not with those that it was built with."""
    layer.finalize_state()
    return type(layer).call(layer, inputs)


@contextmanager
def _left_scopes() -> Iterator[None]:
    """A layer whose name TensorFlow refuses stays in Keras' list, and in the way of later models."""
    before = list(global_state.get_global_attribute(_SCOPES, default=[]))
    try:
        yield
    finally:
        global_state.set_global_attribute(_SCOPES, before)


class _Sequential(keras.Sequential):
    """Sequential model that is built once, and not again after every layer."""

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: Any = None) -> keras.Model:
        """A plain ``keras.Sequential``."""
        layers = [
            keras.saving.deserialize_keras_object(layer, custom_objects)
            for layer in config["layers"]
        ]
        model = keras.Sequential(layers, name=config["name"])
        shape = config.get("build_input_shape")
        if not model.built and isinstance(shape, list) and shape:
            model.build(shape)
        return model


def _with_own_sequential(value: Any, found: dict[str, Any], key: str = "") -> Any:
    """A copy in which Keras looks for the class of every Sequential in ``_Sequential``.

    It is left to each layer whether it trains. Activations that are expressions become functions, which
    Keras looks for in ``found``.
    """
    if isinstance(value, list):
        return [_with_own_sequential(element, found, key) for element in value]
    if key.endswith("activation") and is_expression(value):
        return _function(value, found)
    if not isinstance(value, dict):
        return value
    copied = {name: _with_own_sequential(element, found, name) for name, element in value.items()}
    if copied.get("class_name") == "Functional" and isinstance(copied.get("config"), dict):
        # Keras would hand this on to every layer, also to those that are frozen.
        copied["config"].pop("trainable", None)
    if copied.get("class_name") == "__tensor__":  # a tensor would be one of the graph of its model
        copied["class_name"] = "__numpy__"
    is_sequential = copied.get("class_name") == "Sequential" and "module" in copied
    return {**copied, "registered_name": _SEQUENTIAL} if is_sequential else copied


def _function(text: str, found: dict[str, Any]) -> dict[str, Any]:
    """An expression as Keras writes a function."""
    if text not in found:
        found[text] = function_from(parse_expression(text.removeprefix(EXPRESSION)), text)
    return {
        "module": "builtins",
        "class_name": "function",
        "config": text,
        "registered_name": "function",
    }


_EXCLUDED = "exclude_layers"
_MOST_SHOWN = 20
_NUMBER = re.compile(r"_\d+$")
KERNELS = ("kernel", "depthwise_kernel", "pointwise_kernel", "recurrent_kernel")


def build(
    config: Mapping[str, Any],
    seed: int,
    dropout: float | None = None,
    freeze: tuple[str, ...] = (),
    policy: str | None = None,
) -> keras.Model:
    """A model from a checked architecture; the seed decides the initial weights.

    Args:
        config: checked.
        seed: of the initial weights.
        dropout: rate of every dropout layer, None for those of the architecture.
        freeze: patterns of names of layers that do not train.
        policy: of the precision in which layers compute, None for those of the architecture.

    Raises:
        InvalidArchitecture: Keras refuses the architecture, or its shapes are open.
    """
    config = with_dropout(config, dropout) if dropout is not None else config
    config = with_frozen(config, freeze) if freeze else config
    config = with_policy(config, policy) if policy else config
    # What keras.utils.set_random_seed does, but for TensorFlow's own seed: no initialiser reads
    # it, and setting it would make every program be instantiated anew.
    random.seed(seed % 2**32)
    np.random.seed(seed % 2**32)
    return made(config)


def facts_of(model: keras.Model) -> ArchitectureFacts:
    """Size, work and shapes of a model, from which costs are estimated."""
    leaves = list(model._flatten_layers(include_self=False, recursive=True))
    return ArchitectureFacts(
        parameters=int(model.count_params()),
        multiply_adds=sum(_multiply_adds(layer) for layer in leaves),
        has_convolution=any("Conv" in type(layer).__name__ for layer in leaves),
        has_random=any(_has_random(layer) for layer in leaves),
        layers=len(leaves),
        input_shapes=tuple(_row_shape(tensor.shape) for tensor in model.inputs),
        output_shapes=tuple(_row_shape(tensor.shape) for tensor in model.outputs),
    )


# XLA knows no texts and tables, by which these work; as with random layers, nothing is compiled.
_UNCOMPILED = ("Hashing", "IntegerLookup")


def _has_random(layer: Any) -> bool:
    return hasattr(layer, "seed_generator") or type(layer).__name__ in _UNCOMPILED


def operations_of(model: keras.Model) -> Iterator[Any]:
    """The operations between layers, those of nested models too."""
    for layer in model._flatten_layers(include_self=True, recursive=True):
        for operation in getattr(layer, "operations", ()):
            if not isinstance(operation, keras.Layer):
                yield operation


def units_of(model: keras.Model) -> tuple[int, ...]:
    """The last dimension of each output."""
    return tuple(int(tensor.shape[-1]) for tensor in model.outputs)


def _row_shape(shape: tuple[int | None, ...]) -> tuple[int, ...]:
    if any(size is None for size in shape[1:]):
        raise InvalidArchitecture(
            f"got the open shape {shape}; allowed: every size but the batch fixed",
            hint="give each keras.Input its whole shape",
        )
    return tuple(int(size) for size in shape[1:] if size is not None)


def _multiply_adds(layer: Any) -> int:
    """Multiply-adds of one row: kernel size times the positions where it is applied."""
    own = [weight for weight in getattr(layer, "_trainable_variables", []) if weight.ndim >= 2]
    if not own:
        return 0
    size = sum(math.prod(weight.shape) for weight in own)
    try:
        output = layer.output.shape
    except (AttributeError, ValueError):
        return size
    return size * math.prod(int(size or 1) for size in output[1:-1])


def make_optimizer(
    spec: OptimizerSpec,
    model: keras.Model | None = None,
    architecture: Mapping[str, Any] | None = None,
) -> Any:
    """The Keras optimizer of a configuration.

    Args:
        spec: what it is.
        model: what it is to train; None where it is only asked for its numbers.
        architecture: that the model was made from: layers without names there have no numbers.
    """
    try:
        arguments = dict(spec.arguments)
        if model is not None and _EXCLUDED in arguments:
            arguments[_EXCLUDED] = _excluded(arguments[_EXCLUDED], plain_paths(model, architecture))
        if spec.schedule:
            arguments["learning_rate"] = make_schedule(spec.schedule)
        if spec.parts and model is not None:
            arguments[OPTIMIZER_MAP] = _optimizer_map(spec, model, architecture)
        momentum = arguments.get("momentum")
        if momentum is None or momentum >= 0:
            return getattr(keras.optimizers, spec.name)(**arguments)
        made = getattr(keras.optimizers, spec.name)(**arguments | {"momentum": -momentum})
        made.momentum = NegativeMomentum(momentum)
        return made
    except (TypeError, ValueError) as error:
        raise InvalidArgument(f"Keras refuses the optimizer {spec.name}: {short(error)}") from None


class NegativeMomentum(float):
    """A momentum below zero, which Keras refuses or ignores; its formulas hold for it.

    RMSprop asks whether it is greater than zero where it means that there is one.
    """

    def __gt__(self, other: float) -> bool:
        return other == 0 or float(self) > other


def _excluded(patterns: Sequence[str], paths: Mapping[str, str]) -> list[str]:
    """Patterns of exactly those weights in whose plain paths one of the patterns is found."""
    found = [
        path for path, plain in paths.items() if any(re.search(one, plain) for one in patterns)
    ]
    return [f"^{re.escape(path)}$" for path in found]


def _optimizer_map(
    spec: OptimizerSpec, model: keras.Model, architecture: Mapping[str, Any] | None
) -> Any:
    """Optimizer of each weight, by the rules of Keras: a path itself goes before patterns.

    Raises:
        InvalidArgument: a pattern fits no weight, or two of them fit the same one.
    """
    *_, (_, others) = spec.parts
    made = {
        pattern: make_optimizer(part, model, architecture)
        for pattern, part in spec.parts
        if pattern is not None
    }
    unused, by_path = set(made), {}
    paths = plain_paths(model, architecture)
    for path, plain in paths.items():
        fitting = [plain] if plain in made else [one for one in made if re.fullmatch(one, plain)]
        if len(fitting) > 1:
            raise InvalidArgument(
                f"{OPTIMIZER_MAP}: got {len(fitting)} patterns for the weight {plain!r}: "
                f"{shown(fitting)}; allowed is one"
            )
        for pattern in fitting:
            unused.discard(pattern)
            by_path[path] = made[pattern]
    if unused and paths:  # of a model that is frozen nothing is left for any pattern
        raise InvalidArgument(
            f"{OPTIMIZER_MAP}: got {min(unused)!r}, which fits no weight that trains; there are "
            + ", ".join(list(paths.values())[:_MOST_SHOWN])
        )
    return keras.optimizers.OptimizerMap(make_optimizer(others, model, architecture), by_path)


def plain_paths(
    model: keras.Model, architecture: Mapping[str, Any] | None = None
) -> dict[str, str]:
    """The paths of the weights that train, each with what does not depend on the process.

    A path has names of layers that are parts of others, such as the cell of an LSTM. Keras numbers
    them, and layers without a name, as they are made in a process, so that they are looked at
    without those numbers. Some sequential models put their own name before all paths.
    """
    known = set(_names(model.get_config() if architecture is None else architecture))

    def plain(path: str) -> str:
        parts = path.removeprefix(f"{model.name}/").split("/")
        return "/".join(part if part in known else _NUMBER.sub("", part) for part in parts)

    return {variable.path: plain(variable.path) for variable in model.trainable_variables}


def _names(config: Any) -> Iterator[str]:
    """The names that a configuration of Keras gives to layers, however deep."""
    if isinstance(config, Mapping):
        if isinstance(config.get("name"), str):
            yield config["name"]
        config = list(config.values())
    if isinstance(config, list | tuple):
        for one in config:
            yield from _names(one)


def make_schedule(spec: ScheduleSpec) -> Any:
    """The Keras schedule of a learning rate."""
    return getattr(keras.optimizers.schedules, spec.name)(**with_lists(spec.arguments))


def scales_loss(model: keras.Model) -> bool:
    """True if gradients of a model may be too small for the type in which it computes them."""
    leaves = model._flatten_layers(include_self=False, recursive=True)
    return any(layer.dtype_policy.compute_dtype == "float16" for layer in leaves)


def with_lists(arguments: Arguments) -> dict[str, Any]:
    """Arguments with lists for tuples, as Keras asks for."""
    return {k: list(v) if isinstance(v, tuple) else v for k, v in arguments}


class _GeneralizedCrossEntropy(keras.losses.CategoricalGeneralizedCrossEntropy):
    """The loss of Keras for ids of shape ``[rows, 1]``, which Keras 3.15 compares with all rows of the batch."""

    def call(self, y_true: Any, y_pred: Any) -> Any:
        """The loss of each row."""
        return super().call(keras.ops.squeeze(y_true, -1), y_pred)


_LOSSES = {"CategoricalGeneralizedCrossEntropy": _GeneralizedCrossEntropy}


def make_loss(spec: LossSpec) -> Any:
    """The Keras loss of a configuration."""
    if is_custom(spec.name):
        # What Keras itself makes of a function that it is given as a loss.
        return compile_utils.get_loss(function_of(bare_name(spec.name)), None, None)
    try:
        made = _LOSSES.get(spec.name) or getattr(keras.losses, spec.name)
        return made(**dict(spec.arguments))
    except (TypeError, ValueError) as error:
        raise InvalidArgument(f"Keras refuses the loss {spec.name}: {short(error)}") from None


class Penalty:
    """An L1 and L2 penalty whose strengths are variables, on the kernels of a model."""

    def __init__(self) -> None:
        self.l1 = tf.Variable(0.0, trainable=False, dtype=tf.float32)
        self.l2 = tf.Variable(0.0, trainable=False, dtype=tf.float32)
        self._uses_l1 = self._uses_l2 = False

    def attach(self, model: keras.Model, params: CompileParams) -> None:
        """Replace the penalty of every kernel where the configuration names a strength."""
        self._uses_l1, self._uses_l2 = params.l1 is not None, params.l2 is not None
        if not (self._uses_l1 or self._uses_l2):
            return
        for variable in model.trainable_variables:
            if variable.name in KERNELS:
                variable.regularizer = self

    def assign(self, params: CompileParams) -> None:
        """Take the strengths of a configuration."""
        if self._uses_l1:
            self.l1.assign(params.l1 or 0.0)
        if self._uses_l2:
            self.l2.assign(params.l2 or 0.0)

    def __call__(self, kernel: Any) -> Any:
        penalty = tf.constant(0.0)
        if self._uses_l1:
            penalty = self.l1 * tf.reduce_sum(tf.abs(kernel))
        if self._uses_l2:
            squares = self.l2 * tf.reduce_sum(tf.square(kernel))
            penalty = penalty + squares if self._uses_l1 else squares
        return penalty


def set_weights(model: keras.Model, data: bytes) -> None:
    """Give a model the weights of ``model_weights``: float32, in the order of ``get_weights()``.

    Raises:
        InvalidState: the number of bytes is not that of the architecture.
    """
    shapes = [weight.shape for weight in model.weights]
    expected = 4 * sum(math.prod(shape) for shape in shapes)
    if len(data) != expected:
        raise InvalidState(
            f"got model_weights of {len(data)} bytes; the architecture has {expected // 4} weights, "
            f"which are {expected} bytes of float32",
            hint="give what get_weights() of this very architecture returns, in its order",
        )
    flat = np.frombuffer(data, np.float32)
    start = 0
    for weight, shape in zip(model.weights, shapes, strict=True):
        count = math.prod(shape)
        weight.assign(flat[start : start + count].reshape(shape))
        start += count
