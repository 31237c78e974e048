"""The operations of Keras 3.15 that may stand between the layers of a functional model.

Keras writes ``x + y``, ``x[:, 0]`` and ``keras.ops.mean(x, axis=1)`` into a model's JSON as objects of
classes of its own. Those listed here are allowed, each with the arguments that its class takes; the
tensors and numbers that it is called with are checked where those of layers are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from cerebro_db.configs.arguments import (
    INTEGER_LIMIT,
    Argument,
    allowed_if,
    choice,
    flag,
    is_whole,
    nearest,
    number,
    whole,
)
from cerebro_db.configs.messages import shown
from cerebro_db.errors import InvalidArgument

_MOST_AXES = 32
_MOST_PARTS = 1000  # outputs of one operation
_LONGEST_SUBSCRIPTS = 200
_SUBSCRIPTS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.,-> ")
# Of what a tensor may be cast to: no policies, and no types that Keras computes nothing with.
_DTYPES = (
    "bfloat16", "bool", "float16", "float32", "float64", "int16", "int32", "int64", "int8",
    "uint16", "uint32", "uint64", "uint8",
)  # fmt: skip


def _are_whole(value: object, low: int = -INTEGER_LIMIT) -> bool:
    listed = isinstance(value, list | tuple) and len(value) <= _MOST_AXES
    return listed and all(is_whole(one, low) for one in value)  # type: ignore[attr-defined]


def _are_parts(value: object) -> bool:
    if isinstance(value, list):
        return len(value) < _MOST_PARTS and all(map(is_whole, value))
    return is_whole(value, 1) and value <= _MOST_PARTS  # type: ignore[operator]


def _are_widths(value: object) -> bool:
    if is_whole(value, 0) or _are_whole(value, 0):
        return True
    listed = isinstance(value, list) and len(value) <= _MOST_AXES
    return listed and all(_are_whole(one, 0) for one in value)  # type: ignore[attr-defined]


def _are_axes(value: object) -> bool:
    if isinstance(value, list) and len(value) == 2 and all(map(_are_whole, value)):
        return True
    return is_whole(value, 0) or _are_whole(value)


def _checked(name: str, words: str, check: Callable[[Any], bool], *refused: Any) -> Argument:
    return Argument(name, allowed_if(words, check, *refused), required=True)


def _sizes(name: str, low: int = -INTEGER_LIMIT) -> Argument:
    return _checked(
        name,
        f"a whole number from {low} or a list of such",
        lambda value: is_whole(value, low) or _are_whole(value, low),
        "1", None, low - 1, [low - 1],
    )  # fmt: skip


AXES = allowed_if(
    "an axis, a list of axes or null",
    lambda value: value is None or is_whole(value) or _are_whole(value),
    "1", 1.5, True, ["1"],
)  # fmt: skip
SUBSCRIPTS = allowed_if(
    "subscripts such as 'bij,bjk->bik'",
    lambda value: (
        isinstance(value, str)
        and 0 < len(value) <= _LONGEST_SUBSCRIPTS
        and set(value) <= _SUBSCRIPTS
    ),
    "", "a;b", 1,
)  # fmt: skip
_AXIS = allowed_if("an axis or null", lambda value: value is None or is_whole(value), "1", 1.5, [1])
_AXES, _ONE_AXIS = Argument("axis", AXES), Argument("axis", _AXIS)
_NUMBER = allowed_if(
    "a number or null",
    lambda value: (
        value is None or (isinstance(value, int | float) and not isinstance(value, bool))
    ),
    "1", [1], True,
)  # fmt: skip
_DTYPE = choice("dtype", None, *_DTYPES)
_KEEPDIMS = flag("keepdims", False)
_OPERANDS = _checked("sparse", "false", lambda value: value in (False, None), True)

Arguments = Sequence[Argument]


def _each(names: str, *arguments: Argument) -> dict[str, Arguments]:
    return dict.fromkeys(names.split(), arguments)


_NUMPY: dict[str, Arguments] = {
    **_each(
        "Abs Absolute Arccos Arccosh Arcsin Arcsinh Arctan Arctanh Cbrt Ceil Copy Cos Cosh Deg2rad "
        "Exp Exp2 Expm1 Floor Isfinite Isinf Isnan Log Log10 Log1p Log2 LogicalNot Negative "
        "Rad2deg Ravel Reciprocal Sign Sin Sinc Sinh Sqrt Square Tan Tanh Trunc"
    ),
    **_each(
        "Add Arctan2 Divide DivideNoNan Dot Equal FloorDivide Greater GreaterEqual Hypot Less LessEqual "
        "LogicalAnd LogicalOr LogicalXor Logaddexp Matmul Maximum Minimum Mod Multiply NotEqual "
        "Power Subtract TrueDivide"
    ),
    **_each("GetItem Where Fliplr Flipud Hstack Vstack Dstack"),
    **_each("All Amax Amin Any Mean Std Var", _AXES, _KEEPDIMS),
    **_each("Sum", _AXES, _KEEPDIMS),
    **_each("Prod", _AXES, _KEEPDIMS, _DTYPE),
    **_each("Max Min", _AXES, _KEEPDIMS, Argument("initial", _NUMBER)),
    **_each("Argmax Argmin", _ONE_AXIS, _KEEPDIMS),
    **_each("CountNonzero", _AXES),
    **_each("Cumsum Cumprod", _ONE_AXIS, _DTYPE),
    **_each("Concatenate Stack Take TakeAlongAxis Sort Argsort", _ONE_AXIS),
    **_each("ExpandDims Squeeze Flip", _AXES),
    **_each("Transpose", Argument("axes", AXES)),
    **_each("Swapaxes", whole("axis1", None, low=None), whole("axis2", None, low=None)),
    **_each("Moveaxis", _sizes("source"), _sizes("destination")),
    **_each("Reshape", _sizes("newshape", -1)),
    **_each("BroadcastTo", _sizes("shape", 1)),
    **_each("Repeat", _sizes("repeats", 1), _ONE_AXIS),
    **_each("Tile", _sizes("repeats", 1)),
    **_each("Roll", _sizes("shift"), _AXES),
    **_each("Tril Triu", whole("k", 0, low=None)),
    **_each("OnesLike ZerosLike", _DTYPE),
    "Clip": (
        Argument("x_min", _NUMBER),
        Argument("x_max", _NUMBER),
    ),
    "Einsum": (Argument("subscripts", SUBSCRIPTS, required=True),),
    "NanToNum": (
        number("nan", 0.0, low=None),
        number("posinf", None, low=None),
        number("neginf", None, low=None),
    ),
    "Pad": (
        _checked("pad_width", "whole numbers from 0, or pairs of such", _are_widths, -1, "1", [[[1]]]),
        choice("mode", "constant", "constant", "reflect", "symmetric"),
    ),
    "Round": (whole("decimals", 0, low=-30, high=30),),
    "Split": (
        _checked(
            "indices_or_sections",
            f"a number of parts, or places, up to {_MOST_PARTS}",
            _are_parts,
            0, "2", _MOST_PARTS + 1,
        ),
        _ONE_AXIS,
    ),
    "Tensordot": (
        _checked("axes", "a number of axes, or two lists of them", _are_axes, -1, "1", [[1], "1"]),
    ),
}  # fmt: skip
_NN: dict[str, Arguments] = {
    **_each(
        "HardSigmoid HardSilu HardTanh LogSigmoid Relu Relu6 Selu Sigmoid Silu Softplus Softsign "
        "SparsePlus SparseSigmoid TanhShrink"
    ),
    **_each("Celu Elu", number("alpha", 1.0, low=None)),
    **_each("HardShrink SoftShrink", number("threshold", 0.5, low=None)),
    **_each("Glu LogSoftmax Softmax Sparsemax", _AXES),
    "Gelu": (flag("approximate", True),),
    "LeakyRelu": (number("negative_slope", 0.2, low=None),),
    "Normalize": (_AXES, whole("order", 2, low=1, high=100), number("epsilon", None)),
    "OneHot": (
        whole("num_classes", None, low=1, required=True), _ONE_AXIS, _DTYPE, _OPERANDS,
    ),
    "Squareplus": (number("b", 4.0, low=None),),
    "Threshold": (
        number("threshold", None, low=None, required=True),
        number("default_value", None, low=None, required=True),
    ),
}  # fmt: skip
_MATH: dict[str, Arguments] = {
    **_each("Erf Erfinv Rsqrt"),
    "Logsumexp": (_AXES, _KEEPDIMS),
    "TopK": (whole("k", None, low=1, required=True), flag("sorted", True)),
}
_CORE: dict[str, Arguments] = {
    "Cast": (_DTYPE,),
    "StopGradient": (),
    "Unstack": (whole("num", None, low=1, high=_MOST_PARTS), _ONE_AXIS),
}
_LINALG: dict[str, Arguments] = {
    # Of a matrix, other norms are found by a decomposition, which may not end.
    "Norm": (choice("ord", None, "fro"), _AXES, _KEEPDIMS),
}
_ACTIVATIONS: dict[str, Arguments] = {
    "Mish": (),
    "ReLU": (
        number("negative_slope", 0.0, low=None),
        number("max_value", None, low=None),
        number("threshold", 0.0, low=None),
    ),
}

OPERATIONS: Mapping[str, Mapping[str, Arguments]] = MappingProxyType(
    {
        "keras.src.ops.numpy": _NUMPY,
        "keras.src.ops.nn": _NN,
        "keras.src.ops.math": _MATH,
        "keras.src.ops.core": _CORE,
        "keras.src.ops.linalg": _LINALG,
        "keras.src.activations.activations": _ACTIVATIONS,
    }
)
# What is called with parts of a tensor's shape, and not with tensors and numbers alone.
SLICING = frozenset({"GetItem"})
# On whole numbers native code divides by zero, or by what overflows, and ends the process.
ONLY_FLOATS = frozenset({"FloorDivide", "Mod"})


def is_operation(node: Mapping[str, Any]) -> bool:
    """True if an object in a model's JSON is of a module of operations."""
    module = node.get("module")
    return isinstance(module, str) and (
        module in OPERATIONS or module.startswith(("keras.src.ops", "keras.ops"))
    )


def check_operation(node: Mapping[str, Any], what: str) -> None:
    """Check class and arguments of an operation.

    Args:
        node: the object; its config is a dictionary.
        what: for messages.

    Raises:
        InvalidArgument: it is not on the list, or an argument of it is not allowed.
    """
    module, name = str(node.get("module")), node.get("class_name")
    allowed = OPERATIONS.get(module, {})
    if not isinstance(name, str) or name not in allowed:
        known = [one for operations in OPERATIONS.values() for one in operations]
        raise InvalidArgument(
            f"{what}: got the operation {shown(name)} of the module {module[:60]!r}, which is not allowed",
            hint=nearest(str(name)[:60], known),
        )
    by_name = {argument.name: argument for argument in allowed[name]}
    for key, value in node["config"].items():
        if key == "name" and (value is None or isinstance(value, str)):
            continue
        if key not in by_name:
            raise InvalidArgument(
                f"{what}: got the argument {shown(key)} of {name}; allowed: "
                f"{', '.join(['name', *by_name])}"
            )
        by_name[key].validated(value, f"{what}: {name}")
