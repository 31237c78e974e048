"""The functions that an expression may call: names, parameters, and the operations of Keras behind them.

Names are those of ``keras.ops``; those of ``keras.backend`` and TensorFlow that mean the same are
understood as well, so that what was written for these needs no rewriting.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

# By name; what is not here is a tensor.
_KINDS = {
    "alpha": "number", "approximate": "flag", "axes": "axis", "axis": "axis", "axis1": "whole",
    "axis2": "whole", "decimals": "whole", "dtype": "dtype", "from_logits": "flag",
    "keepdims": "flag", "negative_slope": "number", "newshape": "axis", "num_classes": "whole",
    "order": "whole", "shift": "whole", "subscripts": "subscripts", "tensors": "tensors",
}  # fmt: skip
_REQUIRED = object()


@dataclass(frozen=True)
class Parameter:
    """A parameter of a function.

    Attributes:
        kind: tensor, or of a constant: axis (one, several or None), flag, dtype, number, whole,
            subscripts; tensors is a list of tensors.
        default: of a constant that may be left out.
    """

    name: str
    kind: str
    default: Any = _REQUIRED

    @property
    def is_required(self) -> bool:
        """True if it must be given."""
        return self.default is _REQUIRED


@dataclass(frozen=True)
class Function:
    """A function of expressions.

    Attributes:
        operation: name in ``keras.ops``, or one of the few that are put together.
        parameters: in their order.
        open_ended: whether more tensors may follow.
    """

    operation: str
    parameters: tuple[Parameter, ...]
    open_ended: bool = False


_CONSTANTS = {"None": None, "True": True, "False": False}


def _function(operation: str, parameters: str) -> Function:
    """Of ``"x axis=None"`` and the like; a name after a colon is that of the operation."""
    found = []
    for one in parameters.replace("*", "").split():
        name, given, default = one.partition("=")
        kind = _KINDS.get(name, "tensor")
        if not given:
            found.append(Parameter(name, kind))
            continue
        value = _CONSTANTS[default] if default in _CONSTANTS else float(default)
        found.append(
            Parameter(
                name, kind, int(value) if kind in ("axis", "whole") and value is not None else value
            )
        )
    return Function(operation, tuple(found), "*" in parameters)


def _table(text: str) -> dict[str, Function]:
    """One function a line: names, parameters, and the operation where it is another than the name."""
    table: dict[str, Function] = {}
    for line in text.strip().splitlines():
        head, _, operation = line.partition("->")
        names, _, parameters = head.partition("(")
        for name in names.split():
            table[name] = _function(
                operation.strip() or name, parameters.partition(")")[0].replace(",", " ")
            )
    return table


_OPS = _table(
    """
    abs absolute negative square sqrt rsqrt reciprocal exp exp2 expm1 log log1p log2 log10 sign floor ceil (x)
    sin cos tan sinh cosh tanh arcsin arccos arctan arcsinh arccosh arctanh erf isfinite isnan logical_not (x)
    relu relu6 sigmoid silu softplus softsign selu log_sigmoid hard_sigmoid hard_silu hard_tanh tanh_shrink (x)
    stop_gradient ones_like zeros_like nan_to_num (x)
    swish(x) -> silu
    hard_swish(x) -> hard_silu
    mish(x)
    linear identity (x) -> linear
    exponential(x) -> exp
    epsilon()
    round(x, decimals=0)
    leaky_relu(x, negative_slope=0.2)
    elu celu (x, alpha=1.0)
    gelu(x, approximate=True)
    softmax log_softmax (x, axis=-1)
    add subtract multiply divide true_divide divide_no_nan power maximum minimum (x1, x2)
    equal not_equal greater greater_equal less less_equal logical_and logical_or logical_xor (x1, x2)
    matmul dot arctan2 hypot logaddexp (x1, x2)
    squared_difference(x1, x2)
    mean sum max min amax amin prod std var any all logsumexp norm (x, axis=None, keepdims=False)
    argmax argmin (x, axis=None, keepdims=False)
    count_nonzero cumsum cumprod (x, axis=None)
    clip(x, x_min, x_max)
    where(condition, x1, x2)
    cast(x, dtype)
    reshape(x, newshape)
    transpose(x, axes=None)
    expand_dims(x, axis)
    squeeze flip (x, axis=None)
    sort(x, axis=-1)
    roll(x, shift, axis=None)
    swapaxes(x, axis1, axis2)
    concatenate stack (tensors, axis=0)
    one_hot(x, num_classes, axis=-1, dtype=None)
    normalize(x, axis=-1, order=2)
    einsum(subscripts, *operands)
    binary_crossentropy(target, output, from_logits=False)
    categorical_crossentropy sparse_categorical_crossentropy (target, output, from_logits=False, axis=-1)
    """
)
_BACKEND = _table(
    """
    pow(x, a) -> power
    argmax argmin (x, axis=-1)
    clip(x, min_value, max_value)
    concatenate(tensors, axis=-1)
    expand_dims(x, axis=-1)
    flatten(x)
    l2_normalize(x, axis=None)
    permute_dimensions(x, axes) -> transpose
    relu(x)
    one_hot(indices, num_classes)
    greater greater_equal less less_equal equal not_equal maximum minimum dot (x, y)
    """
)
_TENSORFLOW = _table(
    """
    pow(x, y) -> power
    reduce_mean(input_tensor, axis=None, keepdims=False) -> mean
    reduce_sum(input_tensor, axis=None, keepdims=False) -> sum
    reduce_max(input_tensor, axis=None, keepdims=False) -> max
    reduce_min(input_tensor, axis=None, keepdims=False) -> min
    reduce_prod(input_tensor, axis=None, keepdims=False) -> prod
    reduce_std(input_tensor, axis=None, keepdims=False) -> std
    reduce_variance(input_tensor, axis=None, keepdims=False) -> var
    reduce_any(input_tensor, axis=None, keepdims=False) -> any
    reduce_all(input_tensor, axis=None, keepdims=False) -> all
    reduce_logsumexp(input_tensor, axis=None, keepdims=False) -> logsumexp
    argmax argmin (input, axis=0)
    clip_by_value(t, clip_value_min, clip_value_max) -> clip
    concat(tensors, axis) -> concatenate
    gelu(features, approximate=False)
    is_nan(x) -> isnan
    is_finite(x) -> isfinite
    acos(x) -> arccos
    asin(x) -> arcsin
    atan(x) -> arctan
    atan2(y, x) -> arctan2
    add subtract multiply divide maximum minimum equal not_equal greater greater_equal less less_equal (x, y)
    squared_difference(x, y)
    """
)
_ACTIVATIONS = _table("gelu(x, approximate=False)")

# What may stand before a name, and the functions that have another meaning, or name, with it.
FAMILIES: Mapping[str, Mapping[str, Function]] = MappingProxyType(
    {
        **dict.fromkeys(("", "ops", "keras.ops", "keras.src.ops", "tf.keras.ops"), _OPS),
        **dict.fromkeys(("K", "backend", "keras.backend", "tf.keras.backend"), _OPS | _BACKEND),
        **dict.fromkeys(("tf", "tf.math", "tf.nn", "tf.linalg", "tensorflow"), _OPS | _TENSORFLOW),
        **dict.fromkeys(
            ("activations", "keras.activations", "tf.keras.activations"), _OPS | _ACTIVATIONS
        ),
    }
)
