"""All layers that are allowed, with each of their arguments that is a choice, compute what Keras computes."""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from cerebro_db.configs.architectures.architecture import check_architecture
from cerebro_db.configs.architectures.limits import ArchitectureLimits
from cerebro_db.configs.architectures.names import _LAYERS, ACTIVATIONS
from cerebro_db.errors import InvalidArchitecture

ROWS = 3
# By the end of its name: the shape of a row, and what a layer must be given.
GIVEN: dict[str, tuple[Any, dict[str, Any]]] = {
    "Activation": ((4,), {"activation": "relu"}),
    "Add": ([(4,), (4,)], {}),
    "AdditiveAttention": ([(3, 4), (5, 4)], {}),
    "Attention": ([(3, 4), (5, 4)], {}),
    "Average": ([(4,), (4,)], {}),
    "BatchNormalization": ((4,), {}),
    "CategoryEncoding": ((4,), {"num_tokens": 5}),
    "CenterCrop": ((6, 6, 3), {"height": 4, "width": 4}),
    "Concatenate": ([(4,), (4,)], {}),
    "Dense": ((4,), {"units": 3}),
    "DepthwiseConv1D": ((8, 3), {"kernel_size": 2}),
    "DepthwiseConv2D": ((8, 8, 3), {"kernel_size": 2}),
    "Discretization": ((4,), {"bin_boundaries": [-0.5, 0.0, 1.5]}),
    "Dot": ([(4,), (4,)], {"axes": 1}),
    "EinsumDense": ((3, 4), {"equation": "abc,cd->abd", "output_shape": (3, 5)}),
    "Embedding": ((4,), {"input_dim": 5, "output_dim": 3}),
    "GRU": ((5, 3), {"units": 4}),
    "GroupNormalization": ((6,), {"groups": 3}),
    "GroupQueryAttention": (
        [(3, 4), (5, 4)], {"head_dim": 2, "num_query_heads": 4, "num_key_value_heads": 2},
    ),
    "Hashing": ((4,), {"num_bins": 3}),
    "IntegerLookup": ((4,), {"vocabulary": [1, 2, 4]}),
    "LSTM": ((5, 3), {"units": 4}),
    "Maximum": ([(4,), (4,)], {}),
    "Minimum": ([(4,), (4,)], {}),
    "MultiHeadAttention": ([(3, 4), (5, 4)], {"num_heads": 2, "key_dim": 3}),
    "Multiply": ([(4,), (4,)], {}),
    "Normalization": ((4,), {"mean": [1.0, 2.0, 0.0, 1.0], "variance": [1.0, 4.0, 1.0, 2.0]}),
    "Permute": ((3, 4), {"dims": (2, 1)}),
    "RandomBrightness": ((6, 6, 3), {"factor": 0.2}),
    "RandomContrast": ((6, 6, 3), {"factor": 0.2}),
    "RandomCrop": ((6, 6, 3), {"height": 4, "width": 4}),
    "RandomFlip": ((6, 6, 3), {}),
    "RandomRotation": ((6, 6, 3), {"factor": 0.2}),
    "RandomTranslation": ((6, 6, 3), {"height_factor": 0.2, "width_factor": 0.2}),
    "RandomZoom": ((6, 6, 3), {"height_factor": 0.2}),
    "RepeatVector": ((4,), {"n": 3}),
    "Rescaling": ((4,), {"scale": 0.5}),
    "Reshape": ((4,), {"target_shape": (2, 2)}),
    "Resizing": ((6, 4, 3), {"height": 3, "width": 4}),
    "ReversibleEmbedding": ((4,), {"input_dim": 5, "output_dim": 3}),
    "SimpleRNN": ((5, 3), {"units": 4}),
    "Subtract": ([(4,), (4,)], {}),
    "UnitNormalization": ((4,), {}),
}  # fmt: skip
BY_RANK = {"1D": (8, 3), "2D": (8, 8, 3), "3D": (6, 6, 6, 3)}
WHOLE = {"CategoryEncoding", "Embedding", "Hashing", "IntegerLookup", "ReversibleEmbedding"}
CHOICES: dict[str, tuple[Any, ...]] = {
    "padding": ("valid", "same", "causal"),
    "data_format": ("channels_last", "channels_first"),
    "interpolation": ("nearest", "bilinear", "bicubic", "lanczos3", "lanczos5"),
    "fill_mode": ("constant", "nearest", "reflect", "wrap"),
    "merge_mode": ("concat", "sum", "mul", "ave"),
    "score_mode": ("dot", "concat"),
    "output_mode": ("int", "one_hot", "multi_hot", "count"),
    "implementation": (1, 2),
    "use_cudnn": ("auto", False),
    "mode": ("horizontal", "vertical", "horizontal_and_vertical"),
    "activation": ("tanh", "relu", None),
    "recurrent_activation": ("sigmoid", "hard_sigmoid"),
    "oov_method": ("floormod", "farmhash"),
}
# Of no layer by itself, or said of all.
LEFT_OUT = {"trainable", "autocast"}
# What a model of Keras may have and an architecture may not.
REFUSED: dict[tuple[str, str, Any], str] = {}


def shape_and_arguments(name: str) -> tuple[Any, dict[str, Any]]:
    if name in GIVEN:
        return GIVEN[name]
    shape = next((shape for end, shape in BY_RANK.items() if end in name), (4,))
    if "Separable" in name or ("Conv" in name and "LSTM" not in name):
        return shape, {"filters": 2, "kernel_size": 2}
    if "ConvLSTM" in name:
        return (2, *(4 for _ in shape[1:]), 2), {"filters": 2, "kernel_size": 2}
    if name.startswith("Adaptive"):
        return shape, {"output_size": 2}
    if name.startswith(("AveragePooling", "MaxPooling")):
        return shape, {"pool_size": 2}
    if "Dropout" in name:
        return shape, {"rate": 0.3}
    if name == "GaussianNoise":
        return shape, {"stddev": 0.3}
    return shape, {}


def wrapped(name: str) -> list[tuple[Any, Any]]:
    """Layers that have others inside of them, and the shapes of their rows."""
    import keras

    layers = keras.layers
    inner = [
        layers.GRU(4, reset_after=False), layers.LSTM(4), layers.SimpleRNN(4),
        layers.GRU(4, return_sequences=True), layers.GRU(4, reset_after=False, use_bias=False),
    ]  # fmt: skip
    cells = [
        layers.GRUCell(4, reset_after=False), layers.GRUCell(4), layers.LSTMCell(4),
        layers.SimpleRNNCell(4),
        layers.StackedRNNCells([layers.GRUCell(3, reset_after=False), layers.LSTMCell(4)]),
    ]  # fmt: skip
    if name == "Bidirectional":
        return [
            ((5, 3), layers.Bidirectional(type(one).from_config(one.get_config()), merge_mode=mode))
            for place, one in enumerate(inner)
            for mode in CHOICES["merge_mode"][: 4 if place == 0 else 1]
        ]
    if name == "TimeDistributed":
        return [((5, 3), layers.TimeDistributed(layers.Dense(2)))]
    if name == "SpectralNormalization":
        return [((4,), layers.SpectralNormalization(layers.Dense(2)))]
    flags = ["return_sequences", "go_backwards", "unroll", "zero_output_for_mask"]
    more: list[dict[str, Any]] = [{}, *({flag: True} for flag in flags)]
    return [
        ((5, 3), layers.RNN(type(cell).from_config(cell.get_config()), **given))
        for place, cell in enumerate(cells)
        for given in (more if place == 0 else [{}])
    ]


CELLS = {"GRUCell", "LSTMCell", "SimpleRNNCell", "StackedRNNCells"}
WRAPPERS = {"Bidirectional", "RNN", "SpectralNormalization", "TimeDistributed"}


def variants(name: str) -> Iterator[tuple[str, Any, dict[str, Any]]]:
    """The arguments of a layer one by one with each of their values."""
    import keras

    _, given = shape_and_arguments(name)
    yield "", None, given
    parameters = inspect.signature(getattr(keras.layers, name).__init__).parameters
    known = set(parameters) | ({"implementation"} if name in ("GRU", "LSTM") else set())
    for argument in sorted(known - LEFT_OUT - set(given)):
        default = parameters[argument].default if argument in parameters else None
        values = (not default,) if isinstance(default, bool) else CHOICES.get(argument, ())
        for value in values:
            if name == "ConvLSTM3D" and argument not in ("padding", "use_bias", "return_sequences"):
                continue  # slow, and the code of ConvLSTM2D
            if value != default or isinstance(default, bool):
                yield argument, value, given | {argument: value}


def rows_for(name: str, shape: Any) -> Any:
    generator = np.random.default_rng(0)
    if isinstance(shape, list):
        return [rows_for(name, one) for one in shape]
    if name in WHOLE:
        return generator.integers(0, 5, (ROWS, *shape)).astype(np.float32)
    return generator.normal(size=(ROWS, *shape)).astype(np.float32)


def model_of(shape: Any, layer: Any) -> Any:
    """A model of one layer; of several outputs the first."""
    import keras

    several = isinstance(shape, list)
    inputs = [keras.Input(one) for one in (shape if several else [shape])]
    apart = type(layer).__name__ in ("MultiHeadAttention", "GroupedQueryAttention")
    found = layer(*inputs) if apart or not several else layer(inputs)
    return keras.Model(inputs, found[0] if isinstance(found, list | tuple) else found)


def outputs_of(model: Any, rows: Any) -> Any:
    listed = rows if isinstance(rows, list) else [rows]
    return np.asarray(model(listed if len(listed) > 1 else listed[0], training=False))


def is_random(layer: Any) -> bool:
    return hasattr(layer, "seed_generator")


def check_alike(model: Any, rows: Any) -> None:
    """Refuses nothing, and computes the same."""
    from cerebro_db.training.backends.tensorflow.models import build
    from cerebro_db.training.backends.tensorflow.sizes import check_size

    limits = ArchitectureLimits()
    config = check_architecture(model.to_json(), limits)
    check_size(config, limits)
    ours = build(json.loads(json.dumps(config)), 0)
    ours.set_weights(model.get_weights())
    np.testing.assert_allclose(
        outputs_of(ours, rows), outputs_of(model, rows), rtol=1e-6, atol=1e-6
    )


@pytest.mark.parametrize("name", sorted(_LAYERS - CELLS - {"InputLayer"}))
def test_every_choice(name: str) -> None:
    import keras

    if name in WRAPPERS:
        for shape, layer in wrapped(name):
            check_alike(model_of(shape, layer), rows_for(name, shape))
        return
    shape, _ = shape_and_arguments(name)
    rows = rows_for(name, shape)
    compared, refused = [], {}
    for argument, value, given in variants(name):
        try:
            model = model_of(shape, getattr(keras.layers, name)(**given))
            outputs_of(model, rows)
        except Exception:  # Keras does not do this on a processor, or not with this layer
            assert argument, f"{name} itself"
            continue
        try:
            check_alike(model, rows)
        except InvalidArchitecture as error:
            refused[name, argument, value] = error.message
            continue
        compared.append((argument, value))
    assert ("", None) in compared
    expected = {key: text for key, text in REFUSED.items() if key[0] == name}
    assert refused.keys() == expected.keys(), refused
    for key, text in expected.items():
        assert text in refused[key]


# Keras has no default for what threshold() is given.
@pytest.mark.parametrize("name", sorted(ACTIVATIONS - {"threshold"}))
def test_every_activation(name: str) -> None:
    import keras

    check_alike(model_of((4,), keras.layers.Dense(4, activation=name)), rows_for(name, (4,)))
