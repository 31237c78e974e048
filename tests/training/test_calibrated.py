"""Nets with a fixed scale before their last activation, whatever they end in."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from sklearn.isotonic import IsotonicRegression

from cerebro_db.configs.architectures.architecture import check_architecture
from cerebro_db.configs.architectures.calibrated import ramped, scaled, without_activation
from cerebro_db.errors import InvalidArchitecture
from cerebro_db.training.scores.isotonic import Ramps, isotonic, ramps_of

ROWS = np.random.default_rng(3).normal(size=(40, 3)).astype(np.float32)


def nets() -> dict[str, Any]:
    import keras
    from keras import layers

    def member(rows: Any, units: int, activation: str) -> Any:
        return layers.Dense(units, activation, bias_initializer="random_normal")(rows)

    keras.utils.set_random_seed(2)
    rows = keras.Input((3,))
    several = [member(rows, 4, "softmax") for _ in range(2)]
    one = [member(rows, 1, "sigmoid") for _ in range(2)]
    stacked = keras.ops.stack(several, axis=1)
    return {
        "dense": keras.Sequential([keras.Input((3,)), layers.Dense(4, "softmax")]),
        "sigmoid": keras.Model(rows, member(rows, 1, "sigmoid")),
        "graph": keras.Model(rows, member(rows, 4, "softmax")),
        "activation": keras.Model(rows, layers.Activation("softmax")(member(rows, 4, "linear"))),
        "softmax": keras.Sequential([keras.Input((3,)), layers.Dense(4), layers.Softmax()]),
        "mean": keras.Model(rows, layers.GlobalAveragePooling1D()(stacked)),
        "average": keras.Model(rows, layers.Average()(one)),
    }


NAMES = ("dense", "sigmoid", "graph", "activation", "softmax", "mean", "average")


@pytest.mark.parametrize("name", NAMES)
def test_the_logits_are_multiplied_and_the_weights_stay(name: str) -> None:
    import keras

    net = nets()[name]
    config, weights = check_architecture(net.to_json()), net.get_weights()
    logits, activation = without_activation(config)
    made = []
    for architecture in (logits, scaled(logits, 0.25, activation), scaled(config, 3.0, None)):
        model = keras.models.model_from_json(
            json.dumps(check_architecture(json.dumps(architecture)))
        )
        assert [one.shape for one in model.get_weights()] == [one.shape for one in weights]
        model.set_weights(weights)
        made.append(np.asarray(model(ROWS)))
    before, (values, after, raw) = np.asarray(net(ROWS)), made
    if activation == "sigmoid":
        np.testing.assert_allclose(1 / (1 + np.exp(-values)), before, atol=1e-5)
        wanted = 1 / (1 + np.exp(-values / 4))
    else:
        chances = np.exp(values) / np.exp(values).sum(axis=1, keepdims=True)
        np.testing.assert_allclose(chances, before, atol=1e-5)
        wanted = before**0.25 / (before**0.25).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(after, wanted, atol=1e-5)
    np.testing.assert_allclose(raw, 3 * before, rtol=1e-5)


def test_names_that_are_taken_get_a_number() -> None:
    config = check_architecture(nets()["dense"].to_json())
    twice = scaled(scaled(config, 2.0, "softmax"), 2.0, "softmax")
    names = [layer["config"]["name"] for layer in twice["config"]["layers"]][-4:]
    assert names == ["temperature", "calibrated", "temperature_1", "calibrated_1"]


def test_a_net_that_ends_in_something_else_is_refused() -> None:
    import keras
    from keras import layers

    net = keras.Sequential([keras.Input((3,)), layers.Dense(4, "relu")])
    with pytest.raises(InvalidArchitecture, match=r"ends in Dense .*allowed: a net that ends in"):
        without_activation(check_architecture(net.to_json()))


@pytest.mark.parametrize("name", ["dense", "sigmoid", "mean"])
def test_ramps_are_a_rising_function_of_logits(name: str) -> None:
    """As NumPy interpolates; a step of one ulp is one, too."""
    import keras

    net = nets()[name]
    logits, activation = without_activation(check_architecture(net.to_json()))
    begins = [-1.5, -0.5, float(np.nextafter(np.float32(0.25), np.float32(0)))]
    ramps = Ramps(
        -3.0, np.asarray(begins), np.asarray([-1.0, -0.25, 0.25]), np.asarray([2.0, 0.5, 1.0])
    )
    count = 1 if activation == "sigmoid" else 4
    flat = [-2.0, [], [], []]
    listed = [[one.tolist() if isinstance(one, np.ndarray) else one for one in ramps]]
    made = []
    for config in (logits, ramped(logits, [*listed, *[flat] * (count - 1)], None)):
        model = keras.models.model_from_json(json.dumps(check_architecture(json.dumps(config))))
        model.set_weights(net.get_weights())
        made.append(np.asarray(model(ROWS)))
    before, after = made
    if count > 1:
        before = before - np.log(np.exp(before).sum(axis=1, keepdims=True))
        assert (after[:, 1:] == -2).all()
    assert len(np.unique(after[:, 0])) > 10
    np.testing.assert_allclose(after[:, 0], ramps.at(before[:, 0]), atol=1e-5)


def test_steps_are_those_of_scikit_learn() -> None:
    generator = np.random.default_rng(8)
    scores = np.round(generator.normal(size=500), 1)  # with ties
    truth = (generator.random(500) < 1 / (1 + np.exp(-scores))).astype(float)
    first, last, values = isotonic(scores, truth)
    wanted = IsotonicRegression().fit(scores, truth)
    places = np.linspace(-4, 4, 400)
    assert ramps_of(first, last, values).at(places) == pytest.approx(
        np.interp(places, wanted.X_thresholds_, wanted.y_thresholds_)
    )
    first, last, values = isotonic(np.asarray([1.0, 2.0, 3.0]), np.asarray([1.0, 1.0, 0.0]))
    assert (first.tolist(), last.tolist(), values.tolist()) == ([1], [3], [pytest.approx(2 / 3)])
