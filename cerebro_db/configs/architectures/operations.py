"""The operations of Keras 3.15 that may stand between the layers of a functional model.

Keras writes ``x + y``, ``x[:, 0]`` and ``keras.ops.mean(x, axis=1)`` into a model's JSON as objects of
classes of its own. Those listed here are allowed, each with the arguments that its class takes; the
tensors and numbers that it is called with are checked where those of layers are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from cerebro_db.configs.arguments import Argument, choice, flag, nearest, number, whole
from cerebro_db.configs.messages import shown
from cerebro_db.errors import InvalidArgument

Check = Callable[[object], bool]

_MOST_AXES = 32
_MOST_PARTS = 1000  # outputs of one operation
_INTEGER = 2**31 - 1
_LONGEST_SUBSCRIPTS = 200
_SUBSCRIPTS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.,-> ")
# Of what a tensor may be cast to: no policies, and no types that Keras computes nothing with.
_DTYPES = (
    "bfloat16", "bool", "float16", "float32", "float64", "int16", "int32", "int64", "int8",
    "uint16", "uint32", "uint64", "uint8",
)  # fmt: skip


class Checked:
    """An argument whose value is no single number or text: how it is checked, and told."""

    def __init__(self, name: str, check: Check, words: str) -> None:
        self.name = name
        self._check, self._words = check, words

    def validated(self, value: object, what: str) -> Any:
        """The value, where it is allowed."""
        if not self._check(value):
            raise InvalidArgument(
                f"{what}: got {self.name}={shown(value)}; it must be {self._words}"
            )
        return value


def _is_whole(value: object, low: int = -_INTEGER) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and low <= value <= _INTEGER


def _are_whole(value: object, low: int = -_INTEGER) -> bool:
    listed = isinstance(value, list) and len(value) <= _MOST_AXES
    return listed and all(_is_whole(one, low) for one in value)  # type: ignore[attr-defined]


def _are_parts(value: object) -> bool:
    if isinstance(value, list):
        return len(value) < _MOST_PARTS and all(map(_is_whole, value))
    return _is_whole(value, 1) and value <= _MOST_PARTS  # type: ignore[operator]


def _are_widths(value: object) -> bool:
    if _is_whole(value, 0) or _are_whole(value, 0):
        return True
    listed = isinstance(value, list) and len(value) <= _MOST_AXES
    return listed and all(_are_whole(one, 0) for one in value)  # type: ignore[attr-defined]


def _are_subscripts(value: object) -> bool:
    return (
        isinstance(value, str)
        and 0 < len(value) <= _LONGEST_SUBSCRIPTS
        and set(value) <= _SUBSCRIPTS
    )


def _are_limits(value: object) -> bool:
    """A number; tensors are given where an operation is called."""
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))


def _axis(name: str = "axis") -> Checked:
    return Checked(
        name,
        lambda value: value is None or _is_whole(value) or _are_whole(value),
        "an axis, a list of axes or null",
    )


def _one_axis(name: str = "axis") -> Checked:
    return Checked(name, lambda value: value is None or _is_whole(value), "an axis or null")


def _sizes(name: str, low: int = -_INTEGER) -> Checked:
    return Checked(
        name,
        lambda value: _is_whole(value, low) or _are_whole(value, low),
        f"a whole number from {low} or a list of such",
    )


def _dtype() -> Argument:
    return choice("dtype", None, *_DTYPES)


_KEEPDIMS = flag("keepdims", False)
_AXES = _axis()
_ONE_AXIS = _one_axis()
_LIMIT = "a number or null"
_OPERANDS = Checked("sparse", lambda value: value in (False, None), "false")

Arguments = Sequence[Argument | Checked]


def _each(names: str, *arguments: Argument | Checked) -> dict[str, Arguments]:
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
    **_each("Prod", _AXES, _KEEPDIMS, _dtype()),
    **_each("Max Min", _AXES, _KEEPDIMS, Checked("initial", _are_limits, _LIMIT)),
    **_each("Argmax Argmin", _ONE_AXIS, _KEEPDIMS),
    **_each("CountNonzero", _AXES),
    **_each("Cumsum Cumprod", _ONE_AXIS, _dtype()),
    **_each("Concatenate Stack Take TakeAlongAxis Sort Argsort", _ONE_AXIS),
    **_each("ExpandDims Squeeze Flip", _AXES),
    **_each("Transpose", _axis("axes")),
    **_each("Swapaxes", whole("axis1", None, low=None), whole("axis2", None, low=None)),
    **_each("Moveaxis", _sizes("source"), _sizes("destination")),
    **_each("Reshape", _sizes("newshape", -1)),
    **_each("BroadcastTo", _sizes("shape", 1)),
    **_each("Repeat", _sizes("repeats", 1), _ONE_AXIS),
    **_each("Tile", _sizes("repeats", 1)),
    **_each("Roll", _sizes("shift"), _AXES),
    **_each("Tril Triu", whole("k", 0, low=None)),
    **_each("OnesLike ZerosLike", _dtype()),
    "Clip": (
        Checked("x_min", _are_limits, _LIMIT),
        Checked("x_max", _are_limits, _LIMIT),
    ),
    "Einsum": (Checked("subscripts", _are_subscripts, "subscripts such as 'bij,bjk->bik'"),),
    "NanToNum": (
        number("nan", 0.0, low=None),
        number("posinf", None, low=None),
        number("neginf", None, low=None),
    ),
    "Pad": (
        Checked("pad_width", _are_widths, "whole numbers from 0, or pairs of such"),
        choice("mode", "constant", "constant", "reflect", "symmetric"),
    ),
    "Round": (whole("decimals", 0, low=-30, high=30),),
    "Split": (
        Checked(
            "indices_or_sections", _are_parts, f"a number of parts, or places, up to {_MOST_PARTS}"
        ),
        _ONE_AXIS,
    ),
    "Tensordot": (
        Checked(
            "axes",
            lambda value: _is_whole(value, 0)
            or _are_whole(value)
            or (isinstance(value, list) and len(value) == 2 and all(map(_are_whole, value))),
            "a number of axes, or two lists of them",
        ),
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
        whole("num_classes", None, low=1, required=True), _ONE_AXIS, _dtype(), _OPERANDS,
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
    "Cast": (_dtype(),),
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
