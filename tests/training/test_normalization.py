"""Normalization that was adapted to data: its means are weights, given with the model or in its file."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from cerebro_db.training.scores.targets import TargetFacts

SGD = "loss='sparse_categorical_crossentropy',optimizer='SGD(lr=0.1)'"
ROWS = np.random.default_rng(5)
X = (ROWS.normal(size=(32, 4)) * [1, 5, 10, 0.1] + [3, -2, 100, 0]).astype(np.float32)
Y = ROWS.integers(0, 3, 32).astype(np.int32)


@pytest.fixture(scope="module")
def adapted(tensorflow: None) -> Any:
    """A model whose first layer knows the means of X."""
    import keras

    layer = keras.layers.Normalization()
    layer.adapt(X)
    return keras.Sequential([keras.Input((4,)), layer, keras.layers.Dense(3, activation="softmax")])


@pytest.mark.parametrize("jit", [False, True])
def test_it_predicts_and_trains_as_keras_does(
    adapted: Any, recipe: Callable[..., Any], jit: bool
) -> None:
    import keras

    from cerebro_db.training.backends.tensorflow.program import Program
    from cerebro_db.training.backends.tensorflow.scoring import Scorer

    weights = b"".join(one.astype("float32").tobytes() for one in adapted.get_weights())
    one = recipe(adapted.to_json(), SGD, "batch_size=32", TargetFacts("class", 3, ()), jit=jit)
    program = Program(one)
    state = program.initial_state(one, 1, weights)
    scorer = Scorer(one)
    scorer.load(state, one.compile_params)
    np.testing.assert_allclose(
        scorer.predict(X)[0], adapted.predict(X, verbose=0), rtol=1e-5, atol=1e-6
    )
    program.load(state)
    program.prepare(one.compile_params, one.fit_params)
    program.train(X, Y)
    ours = program.save()
    theirs = keras.models.clone_model(adapted)
    for layer, like in zip(theirs.layers, adapted.layers, strict=True):
        layer.set_weights(like.get_weights())
    theirs.layers[0].finalize_state()
    theirs.compile(keras.optimizers.SGD(0.1), "sparse_categorical_crossentropy")
    theirs.fit(X, Y, batch_size=32, shuffle=False, verbose=0)
    for name, weight in zip(
        ["0/mean", "1/variance", "2/count", "3/kernel", "4/bias"], theirs.get_weights(), strict=True
    ):
        np.testing.assert_allclose(ours[f"weights/{name}"], weight, rtol=1e-4, atol=1e-5)
