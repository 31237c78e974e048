"""The classes of Keras 3.15 that an architecture may be made of, and why others may not."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

# Layers of single nets of keras.applications, which Keras writes with these modules.
_APPLICATIONS: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        "keras.src.applications.convnext": frozenset({"LayerScale"}),
        "keras.src.applications.inception_resnet_v2": frozenset({"CustomScaleLayer"}),
    }
)
_LAYERS = frozenset(
    [
        "Activation",
        "ActivityRegularization",
        "AdaptiveAveragePooling1D",
        "AdaptiveAveragePooling2D",
        "AdaptiveAveragePooling3D",
        "AdaptiveMaxPooling1D",
        "AdaptiveMaxPooling2D",
        "AdaptiveMaxPooling3D",
        "Add",
        "AdditiveAttention",
        "AlphaDropout",
        "Attention",
        "Average",
        "AveragePooling1D",
        "AveragePooling2D",
        "AveragePooling3D",
        "BatchNormalization",
        "Bidirectional",
        "CategoryEncoding",
        "CenterCrop",
        "Concatenate",
        "Conv1D",
        "Conv1DTranspose",
        "Conv2D",
        "Conv2DTranspose",
        "Conv3D",
        "Conv3DTranspose",
        "ConvLSTM1D",
        "ConvLSTM2D",
        "ConvLSTM3D",
        "Cropping1D",
        "Cropping2D",
        "Cropping3D",
        "Dense",
        "DepthwiseConv1D",
        "DepthwiseConv2D",
        "Discretization",
        "Dot",
        "Dropout",
        "ELU",
        "EinsumDense",
        "Embedding",
        "Flatten",
        "GRU",
        "GRUCell",
        "GaussianDropout",
        "GaussianNoise",
        "GlobalAveragePooling1D",
        "GlobalAveragePooling2D",
        "GlobalAveragePooling3D",
        "GlobalMaxPooling1D",
        "GlobalMaxPooling2D",
        "GlobalMaxPooling3D",
        "GroupNormalization",
        "GroupQueryAttention",
        "Hashing",
        "Identity",
        "InputLayer",
        "IntegerLookup",
        "LSTM",
        "LSTMCell",
        "LayerNormalization",
        "LeakyReLU",
        "Masking",
        "MaxPooling1D",
        "MaxPooling2D",
        "MaxPooling3D",
        "Maximum",
        "Minimum",
        "MultiHeadAttention",
        "Multiply",
        "Normalization",
        "PReLU",
        "Permute",
        "RMSNormalization",
        "RNN",
        "RandomBrightness",
        "RandomContrast",
        "RandomCrop",
        "RandomFlip",
        "RandomRotation",
        "RandomTranslation",
        "RandomZoom",
        "ReLU",
        "RepeatVector",
        "Rescaling",
        "Reshape",
        "Resizing",
        "ReversibleEmbedding",
        "SeparableConv1D",
        "SeparableConv2D",
        "SimpleRNN",
        "SimpleRNNCell",
        "Softmax",
        "SpatialDropout1D",
        "SpatialDropout2D",
        "SpatialDropout3D",
        "SpectralNormalization",
        "StackedRNNCells",
        "Subtract",
        "TimeDistributed",
        "UnitNormalization",
        "UpSampling1D",
        "UpSampling2D",
        "UpSampling3D",
        "ZeroPadding1D",
        "ZeroPadding2D",
        "ZeroPadding3D",
    ]
)
LAYERS = _LAYERS.union(*_APPLICATIONS.values())
_INITIALIZERS = [
    "Constant",
    "GlorotNormal",
    "GlorotUniform",
    "HeNormal",
    "HeUniform",
    "Identity",
    "LecunNormal",
    "LecunUniform",
    "Ones",
    "Orthogonal",
    "RandomNormal",
    "RandomUniform",
    "TruncatedNormal",
    "VarianceScaling",
    "Zeros",
]
_REGULARIZERS = ["L1", "L1L2", "L2", "OrthogonalRegularizer"]
_CONSTRAINTS = ["MaxNorm", "MinMaxNorm", "NonNeg", "UnitNorm"]

MODULES: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        "keras": frozenset({"Sequential", "DTypePolicy"}),
        "keras.models": frozenset({"Sequential"}),
        "keras.src.models.functional": frozenset({"Functional"}),
        "keras.layers": _LAYERS,
        "keras.initializers": frozenset(_INITIALIZERS),
        "keras.regularizers": frozenset(_REGULARIZERS),
        "keras.constraints": frozenset(_CONSTRAINTS),
        **_APPLICATIONS,
    }
)
MODELS = frozenset({"Sequential", "Functional"})


def is_layer(node: Mapping[str, Any]) -> bool:
    """True if an object in a checked architecture is a layer; operations share names with some."""
    module, name = node.get("module"), node.get("class_name")
    return name in LAYERS and isinstance(module, str) and name in MODULES.get(module, ())


DROPOUT_LAYERS = frozenset(
    [
        "AlphaDropout",
        "Dropout",
        "GaussianDropout",
        "SpatialDropout1D",
        "SpatialDropout2D",
        "SpatialDropout3D",
    ]
)

ACTIVATIONS = frozenset(
    [
        "celu",
        "elu",
        "exponential",
        "gelu",
        "glu",
        "hard_shrink",
        "hard_sigmoid",
        "hard_silu",
        "hard_swish",
        "hard_tanh",
        "leaky_relu",
        "linear",
        "log_sigmoid",
        "log_softmax",
        "mish",
        "relu",
        "relu6",
        "selu",
        "sigmoid",
        "silu",
        "soft_shrink",
        "softmax",
        "softplus",
        "softsign",
        "sparse_plus",
        "sparse_sigmoid",
        "sparsemax",
        "squareplus",
        "swish",
        "tanh",
        "tanh_shrink",
        "threshold",
    ]
)
_INITIALIZER_NAMES = frozenset(
    [
        "glorot_normal",
        "glorot_uniform",
        "he_normal",
        "he_uniform",
        "identity",
        "lecun_normal",
        "lecun_uniform",
        "ones",
        "orthogonal",
        "random_normal",
        "random_uniform",
        "truncated_normal",
        "variance_scaling",
        "zeros",
        "uniform",
        "normal",
        "one",
        "zero",
    ]
)
# By the end of a parameter's name: the module of its objects, and the names that stand for one.
NAMED_OBJECTS: Mapping[str, tuple[str, frozenset[str]]] = MappingProxyType(
    {
        "activation": ("keras.layers", ACTIVATIONS),
        "_initializer": (
            "keras.initializers",
            (_INITIALIZER_NAMES | set(_INITIALIZERS)) - {"Constant"},
        ),
        "_regularizer": (
            "keras.regularizers",
            frozenset({"l1", "l2", "orthogonal_regularizer", *_REGULARIZERS}),
        ),
        "_constraint": (
            "keras.constraints",
            frozenset({"max_norm", "min_max_norm", "non_neg", "unit_norm", *_CONSTRAINTS}),
        ),
    }
)
# Keras has more: with those, weights lose the small steps of training.
POLICIES = frozenset(["float32", "mixed_bfloat16", "mixed_float16"])
DTYPES = frozenset(
    [
        "bfloat16",
        "bool",
        "float16",
        "float32",
        "float64",
        "int16",
        "int32",
        "int64",
        "int8",
        "uint16",
        "uint32",
        "uint64",
        "uint8",
        *POLICIES,
    ]
)
# Parameters that must be null: they change the weights of a model after it was made.
NULL_PARAMETERS = frozenset({"lora_alpha", "lora_rank", "quantization_config", "quantization_mode"})
# Largest values of parameters, alone or in a list: one says how often Python does something while a
# program is made; with the others native code counts in 32 bits, and ends the process where these
# overflow.
_WINDOW = 2**15
LARGEST: Mapping[str, int] = MappingProxyType(
    {
        "power_iterations": 1000,
        **dict.fromkeys(["dilation_rate", "kernel_size", "pool_size", "strides"], _WINDOW),
    }
)

# Lists of whole numbers, or of weights; as texts they would be paths of files.
VOCABULARIES = frozenset({"idf_weights", "vocabulary"})

_CODE = "it runs code that is not part of Keras"
_FILES = "it may read files of the server"
_TEXT = "it works on text, which packed tables do not hold"
REFUSED_CLASSES: Mapping[str, str] = MappingProxyType(
    {
        "FlaxLayer": _CODE,
        "HashedCrossing": _TEXT,
        "JaxLayer": _CODE,
        "Lambda": _CODE,
        "Layer": "it is the abstract base class",
        "Pipeline": "preprocessing belongs before packing",
        "StochasticDepth": "it draws random numbers that no state keeps; drop_path_rate=0 leaves it out",
        "StringLookup": _FILES,
        "TFOpLambda": _CODE,
        "TFSMLayer": _CODE,
        "TextVectorization": _FILES,
        "TorchModuleWrapper": _CODE,
        "Wrapper": "it is a base class",
        "__bytes__": "it is not a layer",
        "__ellipsis__": "it is allowed in an index of a tensor only",
        "__lambda__": _CODE,
        "__numpy__": "arrays are allowed as arguments of operations only",
        "__slice__": "it is allowed in an index of a tensor only",
        "__tensor__": "arrays are allowed as arguments of operations only",
        "__typespec__": _CODE,
        "function": _CODE,
    }
)
