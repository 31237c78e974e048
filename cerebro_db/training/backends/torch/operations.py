"""Operations of a graph as functions: ATen's own, and Python's for sizes that depend on the batch."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from typing import Any

import torch

from cerebro_db.configs.aten.graph import Dtype, MemoryFormat, Node
from cerebro_db.configs.aten.operations import ATEN
from cerebro_db.configs.messages import shown
from cerebro_db.errors import InvalidArchitecture, InvalidData
from cerebro_db.training.backends.torch import guarded, recurrent

_LARGEST = 2**62
# Memory that nobody has written may hold anything of this process.
_ZEROED = {
    "empty.memory_format": "zeros.default",
    "empty_like.default": "zeros_like.default",
    "new_empty.default": "new_zeros.default",
}
_PLACES = ("device", "layout", "pin_memory")
_TO_DEVICE = ATEN + "to.device"
_BATCH_NORM = "batch_norm.default"
_WRAPPED = recurrent.RECURRENT | guarded.GUARDED | {_BATCH_NORM}


def function_of(target: str) -> Any:
    """The function of a target that is on the list."""
    if target.startswith(ATEN):
        name = target.removeprefix(ATEN)
        if name in _OWN:
            return _OWN[name]
        if name == _BATCH_NORM:
            return _batch_norm
        if name in recurrent.RECURRENT:
            return recurrent.checked(name)
        if name in guarded.GUARDED:
            return guarded.checked(name)
        packet, _, overload = _ZEROED.get(name, name).partition(".")
        try:
            return getattr(getattr(torch.ops.aten, packet), overload)
        except AttributeError:
            raise InvalidArchitecture(
                f"model architecture: got the operation {shown(target)}, which PyTorch "
                f"{torch.__version__} lacks"
            ) from None
    return _SYMBOLS[target]


def bounded(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of numbers that refuses what no size can be, and other arguments, such as a text to repeat."""

    def compute(*given: Any) -> Any:
        if not all(isinstance(one, int | float) for one in given):
            raise InvalidData("got a size that is no number")
        found = function(*given)
        if abs(found) > _LARGEST:
            raise InvalidData("got a size beyond 64 bits")
        return found

    return compute


def _size_of(tensor: torch.Tensor, dim: int) -> int:
    return tensor.shape[dim]


def _assert(condition: Any, message: str = "") -> None:
    """Refuse rows for which the program was not exported."""
    if not condition:
        raise InvalidData(
            f"the rows do not meet a condition of the exported program: {shown(message)}"
        )


def _assert_dtype(tensor: torch.Tensor, *sizes: Any, dtype: Any = None, **others: Any) -> None:
    if dtype is not None and tensor.dtype != dtype:
        raise InvalidData(
            f"got numbers of {tensor.dtype} in the exported program; allowed: {dtype}"
        )


def _constrain(size: Any, *, min: int | None = None, max: int | None = None) -> None:
    if (min is not None and size < min) or (max is not None and size > max):
        raise InvalidData(f"got the size {size}; allowed: {min} to {max}")


def _batch_norm(rows: torch.Tensor, weight: Any, bias: Any, mean: Any, var: Any, *rest: Any) -> Any:
    """Batch normalization, by which one value for each channel changes no averages.

    Such a batch, which plain PyTorch refuses, has no variance: the averages would be no numbers ever after.
    """
    if rows.shape[0] == 1 and rest[0] and rows.numel() == rows.shape[1]:
        mean = var = None
    return torch.ops.aten.batch_norm.default._op(rows, weight, bias, mean, var, *rest)


_OWN: Mapping[str, Callable[..., Any]] = {
    "sym_size.int": _size_of,
    "_assert_scalar.default": _assert,
    "_assert_tensor_metadata.default": _assert_dtype,
    "sym_constrain_range.default": _constrain,
    "sym_constrain_range_for_size.default": _constrain,
}
_SYMBOLS: Mapping[str, Callable[..., Any]] = {
    f"_operator.{name}": bounded(getattr(operator, name))
    for name in (
        [
            "add",
            "sub",
            "mul",
            "floordiv",
            "mod",
            "neg",
            "eq",
            "ne",
            "lt",
            "le",
            "gt",
            "ge",
            "and_",
            "or_",
            "truediv",
            "pos",
        ]
    )
} | {
    "torch.sym_not": operator.not_,
    "torch.sym_max": max,
    "torch.sym_min": min,
    "torch.sym_float": float,
    "torch.sym_int": int,
    "math.floor": math.floor,
    "math.ceil": math.ceil,
    "math.trunc": math.trunc,
}


def constant(value: Any) -> Any:
    """A constant of a graph as torch takes it."""
    if isinstance(value, Dtype | MemoryFormat):
        return getattr(torch, value.name)
    return value


def placed(node: Node, device: str) -> tuple[list[Any], dict[str, Any]]:
    """Positional and named arguments of a node, on a device; references are left as they are.

    Raises:
        InvalidArchitecture: the operation has no such argument.
    """
    schema = _schema_of(node.target)
    if schema is None:
        return _of_function(node)
    given = {argument.name: argument.value for argument in node.arguments}
    known = [argument.name for argument in schema.arguments]
    _check_order(node, known)
    for name in [*given]:
        if name in _PLACES or name not in known:
            value = given.pop(name)
            if name not in (*_PLACES, "memory_format"):
                raise InvalidArchitecture(
                    f"model architecture: got the argument {shown(name)}={shown(value)} of {node.target}"
                )
    if "device" in known and (node.target == _TO_DEVICE or not _takes_tensors(schema)):
        given["device"] = torch.device(device)
    return _split(schema, given)


def _check_order(node: Node, known: list[str]) -> None:
    """Refuse arguments in another order, or twice: what checks a graph goes by their places."""
    names = [one.name for one in node.arguments if one.name in known]
    if names != [name for name in known if name in names]:
        raise InvalidArchitecture(
            f"model architecture: got the arguments {shown(names)} of {node.target}; allowed: each once, in the order "
            f"{shown(known)}"
        )


def check_outputs(node: Node) -> None:
    """Refuse a node with fewer results than its operation has: what has no name is not measured.

    Raises:
        InvalidArchitecture: naming the operation.
    """
    schema = _schema_of(node.target)
    if schema is None:
        return
    is_list = len(schema.returns) == 1 and isinstance(schema.returns[0].type, torch.ListType)
    wanted = [True] if is_list else [False] * len(schema.returns)
    if [isinstance(one, list) for one in node.outputs] != wanted:
        raise InvalidArchitecture(
            f"model architecture: got {len(node.outputs)} results of {node.target}; allowed: its {len(wanted)}"
        )


def _schema_of(target: str) -> Any:
    name = target.removeprefix(ATEN)
    if target.startswith(ATEN) and name in _WRAPPED:
        return recurrent.operation(name)._schema
    return getattr(function_of(target), "_schema", None)


def _of_function(node: Node) -> tuple[list[Any], dict[str, Any]]:
    by_place = [one.value for one in node.arguments if not one.by_name]
    by_name = {one.name: one.value for one in node.arguments if one.by_name}
    return by_place, {name: value for name, value in by_name.items() if name not in _PLACES}


def _takes_tensors(schema: Any) -> bool:
    return any("Tensor" in str(argument.type) for argument in schema.arguments)


def _split(schema: Any, given: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """Arguments by place, until one is missing; the others by name."""
    by_place = []
    for argument in schema.arguments:
        if argument.kwarg_only or argument.name not in given:
            break
        by_place.append(given.pop(argument.name))
    return by_place, given
