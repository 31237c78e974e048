"""Expressions computed with the operations of torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from cerebro_db.configs.functions.expressions import Apply, Expression, Index, Name, Node, Number
from cerebro_db.errors import InvalidArgument

_SMALL = 1e-7
_SAME = frozenset(
    [
        "abs",
        "absolute",
        "negative",
        "square",
        "sqrt",
        "rsqrt",
        "reciprocal",
        "exp",
        "exp2",
        "expm1",
        "log",
        "log1p",
        "log2",
        "log10",
        "sign",
        "floor",
        "ceil",
        "sin",
        "cos",
        "tan",
        "sinh",
        "cosh",
        "tanh",
        "arcsin",
        "arccos",
        "arctan",
        "arcsinh",
        "arccosh",
        "arctanh",
        "erf",
        "isfinite",
        "isnan",
        "logical_not",
        "relu",
        "sigmoid",
        "selu",
        "ones_like",
        "zeros_like",
        "nan_to_num",
        "round",
        "celu",
        "add",
        "subtract",
        "multiply",
        "divide",
        "true_divide",
        "maximum",
        "minimum",
        "greater",
        "greater_equal",
        "less",
        "less_equal",
        "not_equal",
        "logical_and",
        "logical_or",
        "logical_xor",
        "matmul",
        "dot",
        "arctan2",
        "hypot",
        "logaddexp",
        "where",
        "swapaxes",
    ]
)
_REDUCING = (
    "mean",
    "sum",
    "amax",
    "amin",
    "std",
    "var",
    "any",
    "all",
    "logsumexp",
    "argmax",
    "argmin",
)


def _reduced(name: str) -> Callable[..., Any]:
    function = getattr(torch, name)

    def reduce(x: Any, axis: Any = None, keepdims: bool = False) -> Any:
        given = {"correction": 0} if name in ("std", "var") else {}
        if axis is not None:
            return function(x, dim=axis, keepdim=keepdims, **given)
        flat = function(x.reshape(-1), dim=0, **given)
        return flat.reshape([1] * x.dim()) if keepdims else flat

    return reduce


_OWN: Mapping[str, Callable[..., Any]] = {
    **{name: _reduced(name) for name in _REDUCING},
    "max": _reduced("amax"),
    "min": _reduced("amin"),
    "equal": torch.eq,
    "power": torch.pow,
    "epsilon": lambda: _SMALL,
    "linear": lambda x: x,
    "flatten": lambda x: x.reshape(-1),
    "silu": torch.nn.functional.silu,
    "relu6": torch.nn.functional.relu6,
    "softplus": torch.nn.functional.softplus,
    "softsign": torch.nn.functional.softsign,
    "stop_gradient": lambda x: x.detach(),
    "squared_difference": lambda x1, x2: (x1 - x2).square(),
    "softmax": lambda x, axis=-1: torch.softmax(x, axis),
    "log_softmax": lambda x, axis=-1: torch.log_softmax(x, axis),
    "clip": lambda x, x_min=None, x_max=None: torch.clamp(x, x_min, x_max),
    "cast": lambda x, dtype: x.to(getattr(torch, str(dtype))),
    "reshape": lambda x, newshape: x.reshape(newshape),
    "expand_dims": lambda x, axis=-1: x.unsqueeze(axis),
    "divide_no_nan": lambda x1, x2: torch.where(x2 == 0, torch.zeros_like(x1), x1 / x2),
    "l2_normalize": lambda x, axis=-1: torch.nn.functional.normalize(x, dim=axis),
}


def function_from(expression: Expression, name: str) -> Callable[..., Any]:
    """A function of tensors or arrays that computes an expression.

    Raises:
        InvalidArgument: an operation of it is for Keras models only.
    """
    _check(expression, name)

    def function(*given: Any) -> Any:
        values = dict(zip(expression.parameters, map(torch.as_tensor, given), strict=True))
        result = None
        for step, node in expression.steps:
            result = values[step] = _value(node, values)
        return result

    function.__name__ = function.__qualname__ = name
    return function


def _check(expression: Expression, name: str) -> None:
    for _, node in expression.steps:
        for operation in _operations(node):
            if operation not in _SAME and operation not in _OWN:
                raise InvalidArgument(
                    f"got {operation} in the expression {name} for a PyTorch model; allowed: "
                    f"{', '.join(sorted({*_SAME, *_OWN}))}"
                )


def _operations(node: Node) -> list[str]:
    if isinstance(node, Index):
        return _operations(node.of)
    if not isinstance(node, Apply):
        return []
    return [node.operation, *(name for one in node.tensors for name in _operations(one))]


def _value(node: Node, values: dict[str, Any]) -> Any:
    if isinstance(node, Number):
        return node.value
    if isinstance(node, Name):
        return values[node.name]
    if isinstance(node, Index):
        return _value(node.of, values)[tuple(map(_key, node.keys))]
    return _applied(node, [_value(one, values) for one in node.tensors])


def _applied(node: Apply, tensors: list[Any]) -> Any:
    function = _OWN.get(node.operation) or getattr(torch, node.operation)
    given = [torch.as_tensor(one) for one in tensors]
    return (
        function(given, **dict(node.constants))
        if node.listed
        else function(*given, **dict(node.constants))
    )


def _key(key: Any) -> Any:
    return slice(*key) if isinstance(key, tuple) else key
