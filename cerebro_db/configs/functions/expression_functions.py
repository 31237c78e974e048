"""The functions that an expression may call, each declared under the operation of Keras that computes it.

Names are those of ``keras.ops``; those of ``keras.backend`` and TensorFlow that mean the same are
understood as well, so that what was written for these needs no rewriting.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from msgspec import structs

from cerebro_db.configs.architectures.names import DTYPES, POLICIES
from cerebro_db.configs.architectures.operations import AXES, SUBSCRIPTS
from cerebro_db.configs.arguments import (
    BOOL,
    FLOAT,
    Argument,
    Constraint,
    Declaration,
    allowed_if,
    is_whole,
)

TENSOR = Constraint("a tensor", lambda value: value)
TENSORS = Constraint("a list of tensors", lambda value: value)
_AXIS = structs.replace(AXES, words="whole numbers or None")
_DTYPE = allowed_if(
    "the name of a type, such as 'float32'",
    lambda value: value is None or value in DTYPES - POLICIES | {"float32"},
    "string",
)
_WHOLE = allowed_if("a whole number", is_whole, 1.5, "1", True)
# By name; what is not here is a tensor.
_KINDS = {
    "alpha": FLOAT, "approximate": BOOL, "axes": _AXIS, "axis": _AXIS, "axis1": _WHOLE,
    "axis2": _WHOLE, "decimals": _WHOLE, "dtype": _DTYPE, "from_logits": BOOL,
    "keepdims": BOOL, "negative_slope": FLOAT, "newshape": _AXIS, "num_classes": _WHOLE,
    "order": _WHOLE, "shift": _WHOLE, "subscripts": SUBSCRIPTS, "tensors": TENSORS,
}  # fmt: skip
_CONSTANTS = {"None": None, "True": True, "False": False}


def _function(operation: str, parameters: str) -> Declaration:
    """The function of parameters such as ``"x axis=None"``."""
    found = []
    for one in parameters.replace("*", "").split():
        name, given, default = one.partition("=")
        kind = _KINDS.get(name, TENSOR)
        value: Any = None
        if given:
            value = _CONSTANTS[default] if default in _CONSTANTS else float(default)
            value = int(value) if kind in (_AXIS, _WHOLE) and value is not None else value
        found.append(Argument(name, kind, value, required=not given))
    return Declaration(operation, tuple(found), len(found), open_ended="*" in parameters)


def _table(text: str) -> dict[str, Declaration]:
    """One function a line: names, parameters, and the operation where it is another than the name."""
    table: dict[str, Declaration] = {}
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

# Modules that a function may be named with, and the functions of each.
FAMILIES: Mapping[str, Mapping[str, Declaration]] = MappingProxyType(
    {
        **dict.fromkeys(("", "ops", "keras.ops", "keras.src.ops", "tf.keras.ops"), _OPS),
        **dict.fromkeys(("K", "backend", "keras.backend", "tf.keras.backend"), _OPS | _BACKEND),
        **dict.fromkeys(("tf", "tf.math", "tf.nn", "tf.linalg", "tensorflow"), _OPS | _TENSORFLOW),
        **dict.fromkeys(
            ("activations", "keras.activations", "tf.keras.activations"), _OPS | _ACTIVATIONS
        ),
    }
)
