"""Models in the JSON of Keras 2 compute what Keras 2 computed, and train.

The models, and what they answered with the weights below, were written by tf_keras 2.21, which is Keras 2.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cerebro_db.configs.architectures.architecture import check_architecture
from tests.training.conftest import Data, hop, weights_of
from tests.training.test_equality import assert_same, by_hops, one_hot, plain_keras

MODELS: dict[str, dict[str, Any]] = json.loads(
    (Path(__file__).parent / "data" / "keras2_models.json").read_text(encoding="utf-8")
)
# As Keras 2.1.6 wrote it: no modules, no name, the input's shape in the first layer.
OLD_DENSE = {
    "kernel_initializer": {
        "class_name": "VarianceScaling",
        "config": {"distribution": "normal", "scale": 1.0, "seed": None, "mode": "fan_avg"},
    },
    "kernel_constraint": None, "bias_regularizer": None, "bias_constraint": None, "trainable": True,
    "kernel_regularizer": None, "bias_initializer": {"class_name": "Zeros", "config": {}},
    "use_bias": True, "activity_regularizer": None,
}  # fmt: skip
OLD = {
    "class_name": "Sequential", "keras_version": "2.1.6", "backend": "tensorflow",
    "config": [
        {"class_name": "Dense", "config": {**OLD_DENSE, "name": "dense_1", "units": 8,
            "activation": "relu", "dtype": "float32", "batch_input_shape": [None, 6]}},
        {"class_name": "Dense", "config": {**OLD_DENSE, "name": "dense_2", "units": 3,
            "activation": "softmax"}},
    ],
}  # fmt: skip


def wave(shape: Any, start: float = 0.0, scale: float = 0.5) -> np.ndarray:
    count = int(np.prod(shape))
    return (np.sin(np.arange(count) * 1.7 + start) * scale).astype("float32").reshape(shape)


def weights_for(shapes: list[list[int]]) -> list[np.ndarray]:
    found = [wave(shape, number) for number, shape in enumerate(shapes)]
    return [np.abs(array) + 0.1 if array.ndim == 1 else array for array in found]


def rows_for(name: str, shape: tuple[int, ...]) -> np.ndarray:
    if name == "lstm":  # whole numbers, of an embedding
        return (np.arange(np.prod(shape)).reshape(shape) * 7 % 20).astype("float32")
    return wave(shape, 0.3, 1.0)


@pytest.mark.parametrize("name", MODELS)
def test_a_model_of_keras_2_computes_the_same(name: str) -> None:
    from cerebro_db.training.backends.tensorflow import models

    stored = MODELS[name]
    model = models.build(check_architecture(json.dumps(stored["model"])), seed=0)
    assert [list(weight.shape) for weight in model.weights] == stored["shapes"]
    model.set_weights(weights_for(stored["shapes"]))
    answer = np.asarray(model(rows_for(name, (2, *model.inputs[0].shape[1:]))))
    np.testing.assert_allclose(answer, stored["output"], rtol=1e-4, atol=2e-6)


def test_it_trains_as_in_plain_keras(recipe: Callable[..., Any], data: Data) -> None:
    given = recipe(json.dumps(OLD))
    assert_same(by_hops(given, data), plain_keras(given, data, one_hot))


def test_two_branches_train_as_in_plain_keras(recipe: Callable[..., Any], data: Data) -> None:
    given = recipe(json.dumps(MODELS["branches"]["model"]))
    # TensorFlow may round a sum of two branches in another way within a loop.
    for ours, theirs in zip(by_hops(given, data), plain_keras(given, data, one_hot), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=1e-5)


def test_all_of_its_weights_change(recipe: Callable[..., Any], data: Data) -> None:
    first, _ = hop(recipe(json.dumps(OLD)), data, None)
    second, _ = hop(recipe(json.dumps(OLD)), data, first)
    assert [array.shape for array in weights_of(first)] == [(6, 8), (8,), (8, 3), (3,)]
    for before, after in zip(weights_of(first), weights_of(second), strict=True):
        assert (before != after).any()
