"""Sizes of all tensors of a model's forward pass, from a trace that computes nothing."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import keras
import tensorflow as tf

from cerebro_db.errors import InvalidArchitecture
from cerebro_db.training.causes import short

# Rows of the batch that is traced, unless the model fixes them: a prime, so that a size that is a
# multiple of it tells that a tensor grows with the batch.
_PROBE_ROWS = 7919
# Operations that hand on the memory of their input, or of a variable.
_VIEWS = frozenset(
    ["Placeholder", "Identity", "StopGradient", "Reshape", "Squeeze", "ExpandDims", "EnsureShape"]
)
_GRAPHS = ("body", "then_branch", "else_branch", "f")  # attributes that name another graph


@dataclass(frozen=True)
class ModelSize:
    """Memory of a model and of a forward pass in training.

    Attributes:
        parameters: number of weights, trainable or not.
        row_bytes: of all tensors, for each row of a batch.
        largest_bytes: of the largest one of them, for each row.
        fixed_bytes: of tensors that do not grow with the batch.
    """

    parameters: int
    row_bytes: int
    largest_bytes: int
    fixed_bytes: int


def model_size(model: keras.Model) -> ModelSize:
    """Trace a model that need not have values, and add up what it would allocate.

    Raises:
        InvalidArchitecture: the model cannot be called, or a tensor in it has no elements.
    """
    rows = int(model.inputs[0].shape[0] or _PROBE_ROWS)
    each_row, largest, fixed = 0, 0, 0
    for operation, times in _operations(_traced(model, rows)):
        for tensor in operation.outputs:
            size = _bytes(operation, tensor)
            if operation.type in _VIEWS:
                continue
            if any(length and length % rows == 0 for length in tensor.shape):
                each_row += times * size // rows
                largest = max(largest, times * size // rows)
            else:
                fixed += times * size
    parameters = sum(math.prod(weight.shape) for weight in model.weights)
    return ModelSize(parameters, each_row, largest, fixed)


def _traced(model: keras.Model, rows: int) -> tf.Graph:
    """The graph of a forward pass in training, with placeholders for inputs and variables."""
    make = tf.compat.v1.placeholder
    with tf.Graph().as_default() as graph:
        values = [(variable, make(variable.dtype, variable.shape)) for variable in model.variables]
        given = [make(one.dtype, (one.shape[0] or rows, *one.shape[1:])) for one in model.inputs]
        try:
            with keras.StatelessScope(state_mapping=values, initialize_variables=False):
                model(given if len(given) > 1 else given[0], training=True)
        except Exception as error:  # whatever Keras or TensorFlow raises is about the architecture
            raise InvalidArchitecture(
                f"the architecture cannot be computed: {short(error)}"
            ) from None
    return graph


def _operations(graph: Any, times: int = 1) -> Iterator[tuple[Any, int]]:
    """Every operation, those of loops too, with how often it runs."""
    for operation in graph.get_operations():
        yield operation, times
        for name in _GRAPHS:
            if name in operation.node_def.attr and operation.node_def.attr[name].func.name:
                inner = graph._get_function(operation.get_attr(name).name)
                if inner is not None:
                    yield from _operations(inner.graph, times * _steps(operation))


def _steps(operation: Any) -> int:
    """Steps of a loop over the time steps of a recurrent layer; 1 for what is no loop."""
    lists = [
        one.op.inputs[0].shape for one in operation.inputs if one.op.type == "TensorListFromTensor"
    ]
    return max((int(shape[0] or 1) for shape in lists if shape.rank), default=1)


def _bytes(operation: Any, tensor: Any) -> int:
    """Bytes of a tensor; sizes that only the running program knows count as one."""
    if tensor.shape.rank is None or tensor.dtype.size is None:
        return 0
    sizes = [1 if size is None else int(size) for size in tensor.shape]
    # Integers, and constants, may be an empty list of axes or sizes.
    if 0 in sizes and tensor.dtype.is_floating and operation.type != "Const":
        raise InvalidArchitecture(
            f"model architecture: got a tensor of shape {tuple(sizes)} in {operation.name[:80]!r}; "
            "allowed: every size from 1",
            hint=NO_ELEMENTS_HINT,
        )
    return int(tensor.dtype.size) * math.prod(sizes)


NO_ELEMENTS_HINT = "Give the layer a larger input, or a smaller kernel, pool, crop or stride."
