"""Layers that do not train: what the configuration freezes equals what Keras is told not to train."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from cerebro_db.configs.architectures.architecture import check_architecture
from cerebro_db.configs.architectures.freezing import _TRAINED, may_train, with_frozen
from cerebro_db.configs.architectures.names import LAYERS
from cerebro_db.errors import InvalidArchitecture
from cerebro_db.training.scores.targets import TargetFacts
from tests.training.conftest import CLASSES, FEATURES, SOFTMAX, Data, hop, weights_of
from tests.training.test_equality import assert_same, by_hops, one_hot, plain_keras


def model(*, frozen: bool, functional: bool = False) -> str:
    """A net whose first two layers with weights are frozen by Keras, or not."""
    import keras

    layers = keras.layers
    inputs = keras.Input((FEATURES,))
    middle = [
        layers.Dense(8, activation="relu", name="base_1"),
        layers.BatchNormalization(name="base_2"),
        layers.Dropout(0.2),
        layers.Dense(CLASSES, activation="softmax", name="head"),
    ]
    made = keras.Sequential([inputs, *middle])
    if functional:
        outputs = inputs
        for each in middle:
            outputs = each(outputs)
        made = keras.Model(inputs, outputs)
    for each in middle[:2]:
        each.trainable = not frozen
    return str(made.to_json())


def test_layers_without_weights_that_train_are_those_that_make_none() -> None:
    import keras

    wrappers = {
        "Bidirectional",
        "RNN",
        "SpectralNormalization",
        "StackedRNNCells",
        "TimeDistributed",
    }
    not_trained = {"Discretization", "Normalization"}  # what they are told of the data
    applications = {"CustomScaleLayer"}  # which is no part of keras.layers
    for name in LAYERS - _TRAINED - wrappers - not_trained - applications:
        own = [one for one in getattr(keras.layers, name).__mro__ if one is not keras.Layer]
        texts = [
            inspect.getsource(one) for one in own if one.__module__.startswith("keras.src.layers")
        ]
        assert not any("add_weight" in text for text in texts if "class Layer(" not in text), name


def test_what_may_train(recipe: Callable[..., Any]) -> None:
    for frozen, trains in (((), True), (("base*",), True), (("base*", "head"), False)):
        config = check_architecture(model(frozen=False, functional=True))
        assert may_train(with_frozen(config, frozen)) == trains
    inner = {"module": "keras.layers", "class_name": "Dense", "config": {"units": 1}}
    wrapped = {
        "module": "keras.layers",
        "class_name": "TimeDistributed",
        "config": {"layer": inner},
    }
    assert may_train([wrapped])
    wrapped["config"]["trainable"] = False
    assert not may_train([wrapped])


@pytest.mark.parametrize("functional", [False, True])
def test_frozen_layers_equal_those_of_plain_keras(
    recipe: Callable[..., Any], data: Data, functional: bool
) -> None:
    ours = recipe(model(frozen=False, functional=functional), f"{SOFTMAX},freeze='base*'")
    theirs = recipe(model(frozen=True, functional=functional))
    trained = by_hops(ours, data)
    assert_same(trained, plain_keras(theirs, data, one_hot))
    assert_same(trained, by_hops(theirs, data))


@pytest.mark.parametrize("functional", [False, True])
def test_only_the_others_change(
    recipe: Callable[..., Any], data: Data, functional: bool
) -> None:  # fmt: skip
    given = recipe(model(frozen=False, functional=functional), f"{SOFTMAX},freeze=['base_1','*_2']")
    first, _ = hop(given, data, None)
    second, _ = hop(given, data, first)
    changed = [
        bool((a != b).any()) for a, b in zip(weights_of(first), weights_of(second), strict=True)
    ]
    # Also the averages of a frozen normalisation stay: kernel, bias, gamma, beta, mean, variance.
    assert changed == [False] * 6 + [True, True]
    assert first != second


def test_a_frozen_kernel_has_no_penalty(recipe: Callable[..., Any], data: Data) -> None:
    from cerebro_db.training.backends.tensorflow.scoring import Scorer
    from cerebro_db.training.state import from_bytes

    losses = []
    for freeze in ("[]", "['base_1','head']"):
        given = recipe(model(frozen=False), f"{SOFTMAX},l2=0.5,freeze={freeze}")
        scorer = Scorer(given)
        state, _ = hop(recipe(model(frozen=False)), data, None)
        scorer.load(from_bytes(state), given.compile_params)
        losses.append(scorer.measure(*data.pieces(0)[0]).loss_sum)
    kernels = [array for array in weights_of(state) if array.ndim == 2]
    penalty = 0.5 * sum(float((kernel**2).sum()) for kernel in kernels)
    rows = len(data.pieces(0)[0][0])
    np.testing.assert_allclose(losses[0] - losses[1], penalty * rows, rtol=1e-4)


def test_what_is_inside_of_a_frozen_layer_is_frozen() -> None:
    import keras

    layers = keras.layers
    inner = keras.Sequential(
        [keras.Input((4, 3)), layers.LSTM(2, return_sequences=True)], name="base"
    )
    outer = keras.Sequential(
        [keras.Input((4, 3)), inner, layers.Bidirectional(layers.GRU(2), name="both"), layers.Dense(1)]
    )  # fmt: skip
    config = check_architecture(outer.to_json())
    from cerebro_db.training.backends.tensorflow import models

    built = models.build(config, 0, freeze=("base", "both"))
    assert len(built.trainable_variables) == 2  # of the Dense layer
    assert len(built.weights) == 3 + 6 + 2
    assert len(models.build(config, 0).trainable_variables) == 3 + 6 + 2


@pytest.mark.parametrize(
    "optimizer",
    ["Adam(0.01)", "SGD(0.1,momentum=0.9)", "RMSprop(centered=True)", "Ftrl()", "Muon()", "Lamb()",
     "ScheduleFreeAdamW()", "Adafactor()", "SGD(0.1,use_ema=True)",
     "SGD(0.1,gradient_accumulation_steps=3)",
     'MultiOptimizer(OptimizerMap(Adam(0.01), {".*/kernel": SGD(0.05)}))'],
)  # fmt: skip
def test_a_model_of_which_nothing_trains_stays_as_it_is(
    recipe: Callable[..., Any], data: Data, optimizer: str
) -> None:
    text = f"loss='categorical_crossentropy',optimizer={optimizer},freeze='*'"
    given = recipe(model(frozen=False), text)
    first, report = hop(given, data, None)
    second, _ = hop(given, data, first, epoch=2)
    weights = weights_of(first)
    assert len(weights) == 8
    for a, b in zip(weights, weights_of(second), strict=True):
        np.testing.assert_array_equal(a, b)
    assert 0.5 < report.loss < 3


@pytest.mark.parametrize("policy", ["mixed_float16", "float32"])
def test_a_model_without_weights(recipe: Callable[..., Any], data: Data, policy: str) -> None:
    import keras

    net = keras.Sequential([keras.Input((FEATURES,)), keras.layers.Softmax()])
    facts = TargetFacts("class", FEATURES, ())
    text = f"loss='categorical_crossentropy',optimizer='Adam',dtype_policy='{policy}'"
    given = recipe(str(net.to_json()), text, targets=facts)
    state, report = hop(given, data, None)
    assert weights_of(hop(given, data, state)[0]) == weights_of(state) == []
    assert report.loss > 1


def test_gradients_and_weights_where_nothing_trains(recipe: Callable[..., Any], data: Data) -> None:
    """Trainers that compute together exchange a zero."""
    from cerebro_db.training.backends.tensorflow.program import Program

    given = recipe(model(frozen=False), f"{SOFTMAX},freeze='*'")
    program = Program(given)
    program.prepare(given.compile_params, given.fit_params)
    program.load(program.initial_state(given, 3, None))
    before = program.save()
    _, gradients = program.gradients(*data.pieces(0)[0])
    assert gradients.tolist() == [0.0]
    program.apply(gradients)
    assert program.updated(gradients).tolist() == program.weights().tolist() == [0.0]
    program.take(program.weights())
    after = program.save()
    assert all((before[name] == after[name]).all() for name in before if "seed" not in name)


def test_layers_without_names_have_no_pattern() -> None:
    layer = {"module": "keras.layers", "class_name": "Dense", "config": {"units": 1}}
    net = {
        "module": "keras",
        "class_name": "Sequential",
        "config": {"name": "n", "layers": [layer]},
    }
    with pytest.raises(InvalidArchitecture, match="no layer has such a name") as caught:
        with_frozen(net, ("*",))
    assert caught.value.hint == "Its JSON gives no layer a name."


def test_a_name_that_no_layer_has() -> None:
    config = check_architecture(model(frozen=False))
    with pytest.raises(InvalidArchitecture, match="freeze='bas_1', but no layer") as caught:
        with_frozen(config, ("base*", "bas_1"))
    assert caught.value.hint == "Did you mean 'base_1'?"
