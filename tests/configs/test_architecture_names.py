"""The allow-list of classes agrees with the installed Keras (imported here, so it is slow)."""

from __future__ import annotations

import inspect
import json
import os
from typing import Any

import pytest

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
keras = pytest.importorskip("keras")

from cerebro_db.configs.architectures import names  # noqa: E402
from cerebro_db.configs.architectures.architecture import check_architecture, with_dropout  # noqa: E402

pytestmark = pytest.mark.slow

# Augmentation and audio: with the rows, before packing, or not yet looked at.
NOT_LISTED = {
    "AugMix",
    "AutoContrast",
    "ContrastLimitedAdaptiveHistogramEqualization",
    "CutMix",
    "Equalization",
    "MaxNumBoundingBoxes",
    "MelSpectrogram",
    "MixUp",
    "RandAugment",
    "RandomColorDegeneration",
    "RandomColorJitter",
    "RandomElasticTransform",
    "RandomErasing",
    "RandomGaussianBlur",
    "RandomGrayscale",
    "RandomHue",
    "RandomInvert",
    "RandomPerspective",
    "RandomPosterization",
    "RandomSaturation",
    "RandomSharpness",
    "RandomShear",
    "STFTSpectrogram",
    "Solarization",
}


def class_names(module: Any, base: type) -> set[str]:
    found = [getattr(module, name) for name in dir(module)]
    # Keras writes the exported name into the JSON, which differs for one class.
    renamed = {"GroupedQueryAttention": "GroupQueryAttention"}
    return {
        renamed.get(c.__name__, c.__name__)
        for c in found
        if inspect.isclass(c) and issubclass(c, base)
    }


def test_every_layer_is_allowed_or_not_on_purpose() -> None:
    there = class_names(keras.layers, keras.layers.Layer)
    assert there <= names.LAYERS | set(names.REFUSED_CLASSES) | NOT_LISTED
    assert there >= names.MODULES["keras.layers"]
    assert not names.LAYERS & (set(names.REFUSED_CLASSES) | NOT_LISTED)


@pytest.mark.parametrize(
    ("module", "base", "others"),
    [
        ("initializers", "Initializer", {"Initializer", "STFT"}),
        ("regularizers", "Regularizer", {"Regularizer"}),
        ("constraints", "Constraint", {"Constraint"}),
    ],
)
def test_other_classes(module: str, base: str, others: set[str]) -> None:
    there = class_names(getattr(keras, module), getattr(getattr(keras, module), base))
    assert there == names.MODULES[f"keras.{module}"] | others


def test_names_that_stand_for_objects() -> None:
    for name in names.ACTIVATIONS:
        assert callable(keras.activations.get(name))
    for ending in ("initializer", "regularizer", "constraint"):
        for name in names.NAMED_OBJECTS[f"_{ending}"][1]:
            assert getattr(keras, f"{ending}s").get(name) is not None


def example_models() -> list[Any]:
    layers = keras.layers
    image = keras.Input((28, 28, 1))
    x = layers.Conv2D(
        4, 3, activation="relu", kernel_regularizer=keras.regularizers.L2(1e-3),
        kernel_constraint="max_norm",
    )(layers.RandomFlip("horizontal", seed=1)(image))  # fmt: skip
    x = layers.Concatenate()([layers.Flatten()(x), layers.GlobalAveragePooling2D()(x)])
    x = layers.Activation(keras.activations.gelu)(layers.AlphaDropout(0.1)(x))
    sequence = keras.Input((5, 3), name="a b")
    y = layers.MultiHeadAttention(2, 3)(sequence, sequence, use_causal_mask=True)
    y = layers.RNN(layers.StackedRNNCells([layers.LSTMCell(2), layers.GRUCell(2)]))(y)
    return [
        keras.Model(image, [layers.Dense(3, "softmax")(layers.Dropout(0.3)(x)), layers.Dense(1)(x)]),
        keras.Model({"s": sequence}, layers.LeakyReLU()(y)),
        keras.Sequential([
            keras.Input((4,)), layers.Dense(3, activation=layers.LeakyReLU(0.1)),
            layers.BatchNormalization(), keras.Sequential([layers.Dense(2), layers.Dropout(0.5)]),
            layers.GaussianDropout(0.5),
        ]),
        keras.Sequential([
            keras.Input((4, 3)),
            layers.Bidirectional(layers.LSTM(3, return_sequences=True)),
            layers.TimeDistributed(layers.Dense(3, kernel_initializer="orthogonal")),
        ]),
        keras.Sequential([keras.Input((28, 28, 1)), layers.Conv2D(4, 3), layers.MaxPool2D(),
                          layers.GroupNormalization(2), layers.SpectralNormalization(
                              layers.Conv2D(2, 3))]),
    ]  # fmt: skip


def test_real_models_pass_and_can_be_built_again() -> None:
    for model in example_models():
        model.compile(optimizer="adam", loss="mse")
        checked = check_architecture(model.to_json())
        again = keras.models.model_from_json(json.dumps(checked))
        assert [w.shape for w in again.weights] == [w.shape for w in model.weights]
        assert not again.compiled


def test_with_dropout_in_keras() -> None:
    config = check_architecture(example_models()[2].to_json())
    model = keras.models.model_from_json(json.dumps(with_dropout(config, 0.125)))
    assert model.layers[-1].rate == 0.125
    assert model.layers[-2].layers[-1].rate == 0.125
