"""Refuses architectures that are too large, before any memory is taken for them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import keras
import tensorflow as tf
from keras.src.backend.common import global_state

from cerebro_db.configs.architecture import ArchitectureLimits
from cerebro_db.configs.memory import Load, check_worker_memory, worker_memory
from cerebro_db.errors import InvalidArchitecture
from cerebro_db.training.building import made
from cerebro_db.training.forward import NO_ELEMENTS_HINT, ModelSize, model_size

_WAITING = "uninitialized_variables"  # where Keras keeps the variables that have no value yet


def check_size(
    config: Mapping[str, Any], limits: ArchitectureLimits, memory_mb: int | None = None
) -> ModelSize:
    """Refuse a checked architecture that is too large or too small, without taking memory for it.

    Native code of TensorFlow ends the whole process where a tensor has no elements.

    Args:
        config: of the architecture, checked.
        limits: of its size.
        memory_mb: megabytes that this process may use; None for any.

    Raises:
        InvalidArchitecture: it has too many parameters, an output is too large, a tensor has no
            elements, a size is open, or Keras refuses the architecture.
        InvalidArgument: a model that only predicts may need more memory.
    """
    # Variables that are made in such a scope have shapes but no values; what layers compute while
    # they are built becomes operations of a graph that nobody runs.
    waiting = global_state.get_global_attribute(_WAITING)
    global_state.set_global_attribute(_WAITING, None)
    try:
        with tf.Graph().as_default(), keras.StatelessScope(initialize_variables=False):
            model = made(config)
            _check_parameters(model, limits.parameters)
            for layer in model._flatten_layers(include_self=False, recursive=True):
                _check_layer(layer, limits)
            _check_whole_rows(model)
            size = model_size(model)
            if memory_mb is not None:
                load = Load(None, optimizer="", compiled=False, **asdict(size))
                check_worker_memory(worker_memory([load], 0, 0), memory_mb, "a model")
            return size
    finally:
        global_state.set_global_attribute(_WAITING, waiting)


def _check_parameters(model: keras.Model, allowed: int) -> None:
    count = sum(math.prod(weight.shape) for weight in model.weights)
    if count > allowed:
        raise InvalidArchitecture(
            f"model architecture: got {count} parameters; at most {allowed} are allowed",
            hint="An administrator may raise the setting max_parameters.",
        )


def _check_whole_rows(model: keras.Model) -> None:
    for tensor in [*model.inputs, *model.outputs]:
        if None in tensor.shape[1:]:
            raise InvalidArchitecture(
                f"got the open shape {tensor.shape}; allowed: every size but the batch fixed",
                hint="give each keras.Input its whole shape",
            )


def _check_layer(layer: Any, limits: ArchitectureLimits) -> None:
    what = f"model architecture: layer {layer.name[:60]!r}"
    for weight in layer.weights:
        _check_elements(f"{what}, weight {weight.name[:60]!r}", weight.shape)
    for node in layer._inbound_nodes:
        for tensor in [*node.input_tensors, *node.output_tensors]:
            _check_elements(what, tensor.shape)
        inputs = [_sizes(tensor) for tensor in node.input_tensors]
        shapes = [_sizes(tensor) for tensor in node.output_tensors] + _scores(layer, inputs)
        largest = max(map(math.prod, shapes), default=0)
        if largest > limits.elements:
            raise InvalidArchitecture(
                f"{what}: got {largest} numbers for one row; at most {limits.elements} are allowed",
                hint="Give it a smaller input, or fewer units or filters.",
            )
        steps = _unrolled_steps(layer, inputs)
        if steps > limits.steps:
            raise InvalidArchitecture(
                f"{what}: got unroll with {steps} time steps; at most {limits.steps} are allowed",
                hint="Set unroll to false.",
            )


def _check_elements(what: str, shape: Any) -> None:
    if any(size is not None and size < 1 for size in shape):
        raise InvalidArchitecture(
            f"{what}: got the shape {tuple(shape)}; allowed: every size from 1",
            hint=NO_ELEMENTS_HINT,
        )


def _sizes(tensor: Any) -> tuple[int, ...]:
    """The sizes of a row; open ones count as one."""
    return tuple(1 if size is None else int(size) for size in tuple(tensor.shape)[1:])


def _scores(layer: Any, inputs: list[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """The shape of attention scores: every query meets every value."""
    if not type(layer).__name__.endswith("Attention") or len(inputs) < 2:
        return []
    heads: Any = getattr(layer, "num_heads", None) or getattr(layer, "num_query_heads", 1)
    depth = inputs[0][-1] if type(layer).__name__ == "AdditiveAttention" else 1
    return [(heads, depth, *inputs[0][:-1], *inputs[1][:-1])]


def _unrolled_steps(layer: Any, inputs: list[tuple[int, ...]]) -> int:
    """Time steps that become operations of their own."""
    layer = getattr(layer, "forward_layer", layer)  # of a Bidirectional
    return inputs[0][0] if getattr(layer, "unroll", False) and inputs and inputs[0] else 0
