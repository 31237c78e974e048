"""Refuses architectures that are too large, before any memory is taken for them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import keras
import tensorflow as tf
from keras.src.backend.common import global_state
from tensorflow.python.framework.func_graph import FuncGraph

from cerebro_db.configs.architectures.limits import ArchitectureLimits
from cerebro_db.configs.architectures.memory import Load, check_worker_memory, worker_memory
from cerebro_db.configs.architectures.operations import ONLY_FLOATS
from cerebro_db.errors import InvalidArchitecture
from cerebro_db.training.backends import ModelSize
from cerebro_db.training.backends.tensorflow.models import made, operations_of
from cerebro_db.training.causes import short

# Rows of the batch that is traced, unless the model fixes them: a prime, so that a size that is a
# multiple of it tells that a tensor grows with the batch.
_PROBE_ROWS = 7919
# Operations that hand on the memory of their input, or of a variable.
_VIEWS = frozenset(
    ["Placeholder", "Identity", "StopGradient", "Reshape", "Squeeze", "ExpandDims", "EnsureShape"]
)
_GRAPHS = ("body", "then_branch", "else_branch", "f")  # attributes that name another graph


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
    with FuncGraph("called").as_default() as graph:
        values = [(variable, make(variable.dtype, variable.shape)) for variable in model.variables]
        given = [make(one.dtype, (one.shape[0] or rows, *one.shape[1:])) for one in model.inputs]
        try:
            with keras.StatelessScope(state_mapping=values, initialize_variables=False):
                found = model(given if len(given) > 1 else given[0], training=True)
        except Exception as error:  # whatever Keras or TensorFlow raises is about the architecture
            raise InvalidArchitecture(
                f"the architecture cannot be computed: {short(error)}"
            ) from None
    graph.outputs = tf.nest.flatten(found)
    for tensor in graph.outputs:
        _check_rows(tensor, rows)
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
    has_none = 0 in sizes and tensor.dtype.is_floating and operation.type != "Const"
    if has_none and _is_used(tensor):
        raise InvalidArchitecture(
            f"model architecture: got a tensor of shape {tuple(sizes)} in {operation.name[:80]!r}; "
            "allowed: every size from 1",
            hint=NO_ELEMENTS_HINT,
        )
    return int(tensor.dtype.size) * math.prod(sizes)


def _is_used(tensor: Any) -> bool:
    """True if a tensor reaches the outputs of its graph; what does not is never computed.

    Some cells of Keras slice more than they need, such as that of a GRU with ``reset_after=False``.
    """
    outputs = {id(output) for output in tensor.graph.outputs}
    waiting, seen = [tensor], {id(tensor)}
    while waiting:
        one = waiting.pop()
        if id(one) in outputs or any(user.op_def.is_stateful for user in one.consumers()):
            return True
        reached = [made for user in one.consumers() for made in user.outputs]
        waiting += [made for made in reached if id(made) not in seen]
        seen.update(map(id, reached))
    return False


NO_ELEMENTS_HINT = "Give the layer a larger input, or a smaller kernel, pool, crop or stride."
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
    # What layers compute while they are built becomes operations of a graph that nobody runs. Tables,
    # which some layers look whole numbers up in, are made outside of it.
    with FuncGraph("made").as_default(), without_values():
        model = made(config)
        _check_parameters(model, limits.parameters)
        for layer in model._flatten_layers(include_self=False, recursive=True):
            _check_layer(layer, limits)
        for operation in operations_of(model):
            _check_operation(operation, limits)
        _check_whole_rows(model)
        size = model_size(model)
        if memory_mb is not None:
            load = Load(None, optimizer="", compiled=False, **size._asdict())
            check_worker_memory(worker_memory([load], 0, 0), memory_mb, "a model")
        return size


@contextmanager
def without_values() -> Iterator[None]:
    """Variables that are made in here have shapes but no values."""
    waiting = global_state.get_global_attribute(_WAITING)
    global_state.set_global_attribute(_WAITING, None)
    try:
        with keras.StatelessScope(initialize_variables=False):
            yield
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
    for tensor in model.outputs:
        _check_rows(tensor, model.inputs[0].shape[0])


def _check_rows(output: Any, rows: int | None) -> None:
    """Refuse an output that is not of the rows of a batch."""
    shape = tuple(output.shape)
    if len(shape) < 2 or shape[0] not in (None, rows):
        raise InvalidArchitecture(
            f"model architecture: got an output of the shape {shape}; allowed: the rows of a batch, "
            "each with one number or more",
            hint="an index such as x[:, :1] or keepdims=true keeps an axis; axis 0 is that of the rows",
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
        _check_largest(what, shapes, limits)
        steps = _unrolled_steps(layer, inputs)
        if steps > limits.steps:
            raise InvalidArchitecture(
                f"{what}: got unroll with {steps} time steps; at most {limits.steps} are allowed",
                hint="Set unroll to false.",
            )


def _check_operation(operation: Any, limits: ArchitectureLimits) -> None:
    what = f"model architecture: operation {operation.name[:60]!r}"
    for node in operation._inbound_nodes:
        for tensor in [*node.input_tensors, *node.output_tensors]:
            _check_elements(what, tensor.shape)
        _check_largest(what, map(_sizes, node.output_tensors), limits)
        kinds = {tensor.dtype for tensor in node.output_tensors}
        if type(operation).__name__ in ONLY_FLOATS and any("int" in kind for kind in kinds):
            raise InvalidArchitecture(
                f"{what}: got whole numbers; allowed: numbers with a fraction, as whole ones may be "
                "divided by zero",
                hint="keras.ops.cast(x, 'float32') makes them such",
            )


def _check_largest(
    what: str, shapes: Iterable[tuple[int, ...]], limits: ArchitectureLimits
) -> None:
    largest = max(map(math.prod, shapes), default=0)
    if largest > limits.elements:
        raise InvalidArchitecture(
            f"{what}: got {largest} numbers for one row; at most {limits.elements} are allowed",
            hint="Give it a smaller input, or fewer units or filters.",
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
