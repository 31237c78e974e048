"""Names that Keras 2 spells otherwise, has no more, or computes otherwise."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

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
