"""Operations between the layers of Keras 2 models, written as those of Keras 3.

Keras 2 writes ``x + y`` and ``tf.reduce_mean(x, axis=1)`` as layers of the classes TFOpLambda and SlicingOpLambda,
which name a function of TensorFlow; its arguments are in the call. Those listed here have a counterpart.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NoReturn

from cerebro_db.configs.architectures.limits import refuse
from cerebro_db.configs.arguments import nearest
from cerebro_db.configs.messages import shown

Json = dict[str, Any]
CLASSES = frozenset({"SlicingOpLambda", "TFOpLambda"})
CONSTANT = "_CONSTANT_VALUE"

_NUMPY, _NN = "keras.src.ops.numpy", "keras.src.ops.nn"
_MATH, _CORE = "keras.src.ops.math", "keras.src.ops.core"
_SLICES = "slice_spec"


@dataclass(frozen=True)
class Operation:
    """The class of an operation, and how TensorFlow calls its arguments.

    Attributes:
        module, name: of the class.
        tensors: arguments behind the first one that are tensors or numbers.
        config: arguments of the class by their names in TensorFlow.
        neutral: arguments without a counterpart, and the value with which they change nothing.
        defaults: arguments of the class where TensorFlow has other defaults.
    """

    module: str
    name: str
    tensors: Sequence[str] = ()
    config: Mapping[str, str] = field(default_factory=dict)
    neutral: Mapping[str, Any] = field(default_factory=dict)
    defaults: Mapping[str, Any] = field(default_factory=dict)


def _unary(module: str, **names: str) -> dict[str, Operation]:
    return {function: Operation(module, name) for function, name in names.items()}


def _named(prefix: str, operations: Mapping[str, Operation]) -> dict[str, Operation]:
    return {f"{prefix}.{function}": operation for function, operation in operations.items()}


_PAIRS = {
    "add": "Add", "subtract": "Subtract", "multiply": "Multiply", "truediv": "TrueDivide", "divide": "Divide",
    "pow": "Power", "maximum": "Maximum", "minimum": "Minimum", "greater": "Greater", "less": "Less",
    "greater_equal": "GreaterEqual", "less_equal": "LessEqual", "equal": "Equal", "not_equal": "NotEqual",
    "divide_no_nan": "DivideNoNan", "atan2": "Arctan2",
}  # fmt: skip
_REDUCTIONS = {
    "reduce_mean": "Mean", "reduce_sum": "Sum", "reduce_max": "Max", "reduce_min": "Min", "reduce_prod": "Prod",
    "reduce_std": "Std", "reduce_variance": "Var", "reduce_any": "Any", "reduce_all": "All",
}  # fmt: skip
_REDUCED = {"axis": "axis", "keepdims": "keepdims"}
_ALONG = {"axis": "axis"}
_SQUEEZE = Operation(_NUMPY, "Squeeze", config=_ALONG, neutral={"squeeze_dims": None})
_TRANSPOSE = Operation(_NUMPY, "Transpose", config={"perm": "axes"}, neutral={"conjugate": False})
_MATMUL = Operation(
    _NUMPY,
    "Matmul",
    ("b",),
    neutral=dict.fromkeys(
        [
            "transpose_a", "transpose_b", "adjoint_a", "adjoint_b", "a_is_sparse", "b_is_sparse", "grad_a", "grad_b",
        ],
        False,
    )
    | {"output_type": None},
)  # fmt: skip
_SOFT = {
    "sigmoid": Operation(_NN, "Sigmoid"),
    "softplus": Operation(_NN, "Softplus"),
    "tanh": Operation(_NUMPY, "Tanh"),
}

OPERATIONS: Mapping[str, Operation] = MappingProxyType(
    {
        "__operators__.add": Operation(_NUMPY, "Add", ("y",)),
        "__operators__.getitem": Operation(_NUMPY, "GetItem", (_SLICES,)),
        **_named("math", {key: Operation(_NUMPY, name, ("y",)) for key, name in _PAIRS.items()}),
        **_named(
            "math",
            {key: Operation(_NUMPY, name, config=_REDUCED) for key, name in _REDUCTIONS.items()},
        ),
        **_named(
            "math",
            _unary(
                _NUMPY, abs="Absolute", exp="Exp", expm1="Expm1", log="Log", log1p="Log1p", sqrt="Sqrt",
                square="Square", negative="Negative", sign="Sign", floor="Floor", ceil="Ceil", sin="Sin", cos="Cos",
                tan="Tan", asin="Arcsin", acos="Arccos", atan="Arctan", sinh="Sinh", cosh="Cosh",
                reciprocal="Reciprocal", logical_not="LogicalNot",
            ),
        ),
        **_named("math", _unary(_MATH, rsqrt="Rsqrt", erf="Erf")),
        "math.reduce_logsumexp": Operation(_MATH, "Logsumexp", config=_REDUCED),
        **_named("math", _SOFT),
        **_named("nn", _SOFT),
        **_named("nn", _unary(_NN, relu="Relu", relu6="Relu6", selu="Selu", softsign="Softsign")),
        "nn.elu": Operation(_NN, "Elu"),
        "nn.gelu": Operation(
            _NN, "Gelu", config={"approximate": "approximate"}, defaults={"approximate": False}
        ),
        "nn.leaky_relu": Operation(_NN, "LeakyRelu", config={"alpha": "negative_slope"}),
        "nn.log_softmax": Operation(_NN, "LogSoftmax", config=_ALONG),
        "nn.silu": Operation(_NN, "Silu", neutral={"beta": 1.0}),
        "nn.softmax": Operation(_NN, "Softmax", config=_ALONG),
        "cast": Operation(_CORE, "Cast", config={"dtype": "dtype"}),
        "clip_by_value": Operation(
            _NUMPY, "Clip", config={"clip_value_min": "x_min", "clip_value_max": "x_max"}
        ),
        "compat.v1.squeeze": _SQUEEZE,
        "compat.v1.transpose": _TRANSPOSE,
        "concat": Operation(_NUMPY, "Concatenate", config=_ALONG),
        "expand_dims": Operation(_NUMPY, "ExpandDims", config=_ALONG),
        "linalg.matmul": _MATMUL,
        "reshape": Operation(_NUMPY, "Reshape", config={"shape": "newshape"}),
        "squeeze": _SQUEEZE,
        "stack": Operation(_NUMPY, "Stack", config=_ALONG, defaults={"axis": 0}),
        "stop_gradient": Operation(_CORE, "StopGradient"),
        "tile": Operation(_NUMPY, "Tile", config={"multiples": "repeats"}),
        "transpose": _TRANSPOSE,
    }
)  # fmt: skip


def operation_of(node: Json, tensor: Callable[[Any], Any], place: str) -> Json:
    """An operation with its call.

    Args:
        node: the layer as Keras 2 writes it; it has a name and a config.
        tensor: writes a reference [layer, call, output] as a tensor; None for what is no reference.
        place: for messages.

    Raises:
        InvalidArchitecture: it has no counterpart, or an argument has none.
    """
    function = node["config"].get("function")
    operation = OPERATIONS.get(function) if isinstance(function, str) else None
    if operation is None:
        refuse(
            f"the JSON of Keras 2 cannot be converted: {place}: got the function {shown(function)} of "
            "TensorFlow, which has no counterpart",
            nearest(str(function)[:60], list(OPERATIONS)),
        )
    first, given = _call_of(node.get("inbound_nodes"), tensor, place)
    arguments = [first]
    for name in operation.tensors:
        if name not in given:
            _refuse_argument(place, name, "nothing")
        value = given.pop(name)
        arguments.append(_slices(value, place) if name == _SLICES else _value(value, tensor))
    config: Json = {"name": node["name"], **operation.defaults}
    for name, value in given.items():
        if name in operation.config:
            config[operation.config[name]] = value
        elif value != operation.neutral.get(name, value if name == "name" else ...):
            _refuse_argument(place, name, shown(value))
    return {
        "module": operation.module,
        "class_name": operation.name,
        "config": config,
        "registered_name": operation.name,
        "name": node["name"],
        "inbound_nodes": [{"args": arguments, "kwargs": {}}],
    }


def _call_of(nodes: Any, tensor: Callable[[Any], Any], place: str) -> tuple[Any, Json]:
    """The first argument, and all others by their names."""
    if not isinstance(nodes, list) or len(nodes) != 1 or not isinstance(nodes[0], list):
        _refuse_argument(place, "inbound_nodes", shown(nodes))
    (call,) = nodes
    several = bool(call) and all(isinstance(one, list) for one in call)
    references = call if several else [call]
    found = [_reference(one, tensor) for one in references]
    last = references[-1] if references else None
    if None in found or not isinstance(last, list) or len(last) != 4:
        _refuse_argument(place, "inbound_nodes", shown(nodes))
    if not isinstance(last[3], dict):
        _refuse_argument(place, "inbound_nodes", shown(nodes))
    return (found if several else found[0]), dict(last[3])


def _reference(value: Any, tensor: Callable[[Any], Any]) -> Any:
    if isinstance(value, list) and len(value) == 4 and value[:2] == [CONSTANT, -1]:
        return _value(value[2], tensor)
    return tensor(value)


def _value(value: Any, tensor: Callable[[Any], Any]) -> Any:
    """A tensor, a number, or a list of numbers as an array."""
    found = tensor(value)
    if found is not None:
        return found
    if isinstance(value, list):
        return {"class_name": "__numpy__", "config": {"value": value, "dtype": "float32"}}
    return value


def _slices(value: Any, place: str) -> Any:
    """Parts of an index."""
    if isinstance(value, list):
        return [_slices(one, place) for one in value]
    if not isinstance(value, dict):
        return value
    if value.get("class_name") == "__ellipsis__":
        return {"class_name": "__ellipsis__", "config": {}}
    if set(value) == {"start", "stop", "step"}:
        return {"class_name": "__slice__", "config": value}
    _refuse_argument(place, _SLICES, shown(value))


def _refuse_argument(place: str, name: str, got: str) -> NoReturn:
    refuse(
        f"the JSON of Keras 2 cannot be converted: {place}: {name}: got {got}, which has no counterpart"
    )


MODELS = frozenset({"Functional", "Model", "Sequential"})

RENAMED_LAYERS: Mapping[str, str] = MappingProxyType(
    {
        "BatchNormalizationV1": "BatchNormalization",
        "BatchNormalizationV2": "BatchNormalization",
        "ThresholdedReLU": "ReLU",
        "UnifiedGRU": "GRU",
        "UnifiedLSTM": "LSTM",
    }
)

_CUDNN = "its weights are laid out in another way; make the model with {} instead"
_GONE = "Keras 3 does not have it"
REFUSED_LAYERS: Mapping[str, str] = MappingProxyType(
    {
        "CuDNNGRU": _CUDNN.format("GRU"),
        "CuDNNLSTM": _CUDNN.format("LSTM"),
        "DenseFeatures": _GONE,
        "Highway": _GONE,
        "LocallyConnected1D": _GONE,
        "LocallyConnected2D": _GONE,
        "MaxoutDense": _GONE,
        "Merge": _GONE + "; use Add, Concatenate or another of the merging layers",
        "TensorFlowOpLayer": "operations outside layers are not allowed",
    }
)

RENAMED_FIELDS: Mapping[tuple[str, str], str] = MappingProxyType(
    {
        ("InputLayer", "batch_input_shape"): "batch_shape",
        ("LeakyReLU", "alpha"): "negative_slope",
        ("ThresholdedReLU", "theta"): "threshold",
    }
)

# Fields of Keras 2 alone, by classes whose names have such a beginning, and the values with which they can be left
# out. ANY: none of them changes what the layer computes.
ANY: tuple[Any, ...] = ()
_NONE: tuple[Any, ...] = (None,)
_OFF: tuple[Any, ...] = (None, False)
_GROUPS: tuple[Any, ...] = (None, 1)
LEFT_OUT: tuple[tuple[str, str, tuple[Any, ...]], ...] = (
    ("AdditiveAttention", "causal", _OFF),
    ("Attention", "causal", _OFF),
    ("BatchNormalization", "adjustment", _NONE),
    ("BatchNormalization", "fused", ANY),
    ("BatchNormalization", "virtual_batch_size", _NONE),
    ("Bidirectional", "num_constants", _NONE),
    ("Conv1DTranspose", "groups", _GROUPS),
    ("Conv2DTranspose", "groups", _GROUPS),
    ("Conv3DTranspose", "groups", _GROUPS),
    ("ConvLSTM", "time_major", _OFF),
    ("DepthwiseConv", "filters", ANY),
    ("DepthwiseConv", "groups", _GROUPS),
    ("DepthwiseConv", "kernel_constraint", _NONE),
    ("DepthwiseConv", "kernel_initializer", ANY),
    ("DepthwiseConv", "kernel_regularizer", _NONE),
    ("Embedding", "input_length", ANY),
    ("GRU", "implementation", ANY),
    ("GRU", "time_major", _OFF),
    ("InputLayer", "ragged", _OFF),
    ("InputLayer", "sparse", _OFF),
    ("LSTM", "implementation", ANY),
    ("LSTM", "time_major", _OFF),
    ("MultiHeadAttention", "key_shape", ANY),
    ("MultiHeadAttention", "query_shape", ANY),
    ("MultiHeadAttention", "softmax_robust_masking", _OFF),
    ("MultiHeadAttention", "value_shape", ANY),
    ("RNN", "num_constants", _NONE),
    ("RNN", "time_major", _OFF),
    ("SeparableConv", "groups", _GROUPS),
    ("SeparableConv", "kernel_constraint", _NONE),
    ("SeparableConv", "kernel_initializer", ANY),
    ("SeparableConv", "kernel_regularizer", _NONE),
    ("SimpleRNN", "implementation", ANY),
    ("SimpleRNN", "time_major", _OFF),
    ("Discretization", "trainable", ANY),
    ("SpatialDropout", "noise_shape", _NONE),
    ("SpatialDropout", "trainable", ANY),
    ("UnifiedGRU", "implementation", ANY),
    ("UnifiedGRU", "time_major", _OFF),
    ("UnifiedLSTM", "implementation", ANY),
    ("UnifiedLSTM", "time_major", _OFF),
)

# Layers that Keras 2 called with a list of their input and the states that they begin with.
RECURRENT = frozenset(
    ["Bidirectional", "ConvLSTM1D", "ConvLSTM2D", "ConvLSTM3D", "GRU", "LSTM", "RNN", "SimpleRNN"]
)

# Fields that hold layers.
LAYER_FIELDS = frozenset({"backward_layer", "cell", "forward_layer", "layer"})

RENAMED_ACTIVATIONS: Mapping[str, str] = MappingProxyType({"softmax_v2": "softmax"})
REFUSED_ACTIVATIONS: Mapping[str, str] = MappingProxyType(
    {
        "hard_sigmoid": "Keras 3 computes another function under this name: its slope is 1/6 and not 0.2; "
        "make the model with sigmoid instead",
    }
)

OBJECT_MODULES: Mapping[str, str] = MappingProxyType(
    {
        "_initializer": "keras.initializers",
        "_regularizer": "keras.regularizers",
        "_constraint": "keras.constraints",
    }
)
# A normal distribution was always a truncated one there.
RENAMED_DISTRIBUTIONS: Mapping[str, str] = MappingProxyType({"normal": "truncated_normal"})
