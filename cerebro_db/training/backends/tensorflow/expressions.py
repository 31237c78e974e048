"""Expressions computed with the operations of Keras."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras

from cerebro_db.configs.functions.expressions import Apply, Expression, Index, Name, Node, Number
from cerebro_db.errors import InvalidArgument

_EPSILON = 1e-7  # of keras.backend, which some configurations of Keras change

_PUT_TOGETHER: dict[str, Callable[..., Any]] = {
    "epsilon": lambda: _EPSILON,
    "flatten": lambda x: keras.ops.reshape(x, (-1,)),
    "l2_normalize": lambda x, axis: keras.ops.normalize(x, axis=axis, order=2),
    "linear": lambda x: x,
    "mish": lambda x: keras.activations.mish(x),
    "squared_difference": lambda x1, x2: keras.ops.square(x1 - x2),
}


def function_from(expression: Expression, name: str) -> Callable[..., Any]:
    """A function of tensors that computes an expression; it is named as Keras shall call it."""

    def computed(*tensors: Any) -> Any:
        values = dict(zip(expression.parameters, tensors, strict=True))
        result = None
        for step, node in expression.steps:
            result = values[step] = _value(node, values)
        return result

    if expression.places == 1:

        def function(x: Any) -> Any:
            result = computed(x)
            if tuple(getattr(result, "shape", ())) != tuple(x.shape):
                raise InvalidArgument(
                    f"got an expression that makes the shape {tuple(getattr(result, 'shape', ()))} of "
                    f"{tuple(x.shape)}; allowed: an activation keeps the shape"
                )
            return result

    else:

        def function(y_true: Any, y_pred: Any) -> Any:  # type: ignore[misc]
            return computed(y_true, y_pred)

    function.__name__ = function.__qualname__ = name
    return function


def _value(node: Node, values: dict[str, Any]) -> Any:
    if isinstance(node, Number):
        return node.value
    if isinstance(node, Name):
        return values[node.name]
    if isinstance(node, Index):
        return _value(node.of, values)[tuple(map(_key, node.keys))]
    return _applied(node, [_value(one, values) for one in node.tensors])


def _applied(node: Apply, tensors: list[Any]) -> Any:
    function = _PUT_TOGETHER.get(node.operation) or getattr(keras.ops, node.operation)
    constants = dict(node.constants)
    if node.operation == "einsum":
        return function(constants["subscripts"], *tensors)
    if node.listed:
        return function(tensors, **constants)
    return function(*tensors, **constants)


def _key(key: Any) -> Any:
    return slice(*key) if isinstance(key, tuple) else key
