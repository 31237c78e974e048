"""Expressions compute what the same functions of Keras compute, to the bit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from cerebro_db.configs.functions.expression_functions import FAMILIES
from cerebro_db.configs.functions.expressions import parse_expression
from cerebro_db.errors import InvalidArgument
from cerebro_db.training.functions import Function, function_of, know
from tests.training.conftest import Data, hop, net

OURS = {
    "our_log_cosh": "d = y_pred - y_true\nmean(d + softplus(d * -2.0) - log(2.0), axis=-1)",
    "our_error": "K.mean(K.square(y_true - y_pred), axis=-1)",
    "our_focal": "p = clip(y_pred, 1e-7, 1.0)\nsum(-y_true * (1.0 - p) ** 2.0 * log(p), axis=-1)",
}


@pytest.fixture
def registered() -> Iterator[None]:
    know({name: Function(None, None, None, text) for name, text in OURS.items()})
    yield
    know({})


def function(text: str) -> Callable[..., Any]:
    from cerebro_db.training.backends.tensorflow.expressions import function_from

    return function_from(parse_expression(text), "ours")


Y = np.random.default_rng(3).uniform(0.05, 0.95, (2, 5, 4)).astype(np.float32)
SAME: dict[str, Callable[[Any, Any], Any]] = {
    "K.mean(K.square(y_true - y_pred), axis=-1)": lambda t, p: ((t - p) ** 2).mean(-1),
    "K.sqrt(K.mean(K.square(y_pred - y_true), axis=-1))": lambda t, p: np.sqrt(
        ((t - p) ** 2).mean(-1)
    ),
    "tf.reduce_sum(y_true * tf.math.log(y_pred), 1)": lambda t, p: (t * np.log(p)).sum(1),
    "where(y_true > y_pred, y_true, 2.0 * y_pred)": lambda t, p: np.where(t > p, t, 2 * p),
    "y_pred[:, 0:2] / (y_true[..., :2] + 1)": lambda t, p: p[:, :2] / (t[:, :2] + 1),
    "K.flatten(y_true)[0] * y_pred": lambda t, p: t[0, 0] * p,
    "concatenate([y_true, y_pred], axis=1)": lambda t, p: np.concatenate([t, p], 1),
    "K.cast(K.equal(K.argmax(y_true), K.argmax(y_pred)), 'float32')": lambda t, p: (
        t.argmax(-1) == p.argmax(-1)
    ).astype("float32"),
    "einsum('bi,bi->b', y_true, y_pred)": lambda t, p: (t * p).sum(1),
    "y_true @ transpose(y_pred)": lambda t, p: t @ p.T,
    "abs(-y_pred) ** 2 - epsilon() + (2 ** 3) * squared_difference(y_true, y_pred)": lambda t, p: (
        p**2 - 1e-7 + 8 * (t - p) ** 2
    ),
    "l = y_true\nl = l + y_pred\nl = l * l\nl": lambda t, p: (t + p) ** 2,
    "K.l2_normalize(y_pred, axis=-1) * y_true[:, None, 0]": lambda t, p: (
        p / np.sqrt((p**2).sum(-1, keepdims=True)) * t[:, :1]
    ),
}


@pytest.mark.parametrize("text", SAME)
def test_they_compute_what_they_say(text: str) -> None:
    found = np.asarray(function(text)(*Y))
    np.testing.assert_allclose(found, SAME[text](*Y), rtol=1e-5, atol=1e-6)


def test_every_function_that_is_allowed_is_there() -> None:
    import keras

    from cerebro_db.training.backends.tensorflow.expressions import _PUT_TOGETHER

    for functions in FAMILIES.values():
        for name, found in functions.items():
            assert found.name in _PUT_TOGETHER or hasattr(keras.ops, found.name), name


def parameters(loss: str) -> str:
    return f"loss='{loss}',optimizer='Adam',metrics=['{loss}']"


def test_an_expression_trains_as_the_loss_of_keras(
    recipe: Callable[..., Any], data: Data, registered: None
) -> None:
    found = []
    for loss in ("custom.our_error", "mean_squared_error"):
        state, _ = hop(recipe(net(), parameters(loss)), data, None)
        found.append(state)
    assert found[0] == found[1]
    first = hop(recipe(net(), parameters("custom.our_focal")), data, None)[0]
    assert first == hop(recipe(net(), parameters("custom.our_focal")), data, None)[0]


def test_several_outputs(recipe: Callable[..., Any], registered: None) -> None:
    from cerebro_db.configs.grids.outputs import metric_names, outputs_of
    from cerebro_db.configs.grids.parameters import parse_compile_params

    text = "loss={'a': custom.our_error, 'b': 'mae'},metrics=[['custom.our_error'], ['mse']],optimizer='SGD'"
    outputs = outputs_of(parse_compile_params(text), ["a", "b"])
    assert [one.loss.name for one in outputs] == ["custom.our_error", "MeanAbsoluteError"]
    assert metric_names(outputs)[0] == "a_our_error"


def test_another_expression_under_the_same_name_is_another_function(registered: None) -> None:
    before = function_of("our_error")
    assert function_of("our_error") is before
    assert know({"our_error": Function(None, None, None, "y_pred - y_true")})
    assert function_of("our_error") is not before
    know({})
    with pytest.raises(InvalidArgument, match="allowed: a function that is registered"):
        function_of("our_error")
