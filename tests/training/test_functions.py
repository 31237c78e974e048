"""Registered functions: what may be one, and that it trains as Keras' own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from cerebro_db.configs.grids.outputs import outputs_of
from cerebro_db.configs.grids.parameters import is_taken, parse_compile_params, parse_fit_params
from cerebro_db.decide import callbacks
from cerebro_db.errors import InvalidArgument
from cerebro_db.scoring.prediction_models import common_goal
from cerebro_db.training.functions import (
    Function,
    distribution_of,
    function_of,
    imported,
    know,
    places_of,
)
from tests.training.conftest import Data, hop, net

LOG_COSH = "keras.losses:log_cosh"


@pytest.fixture
def registered() -> Iterator[None]:
    know({"ours": Function(LOG_COSH, *distribution_of(LOG_COSH))})
    yield
    know({})


@pytest.mark.parametrize(
    "path",
    [
        "os:system", "builtins:eval", "subprocess:run", "pickle:loads", "ctypes:CDLL", "posix:system",
        "_posixsubprocess:fork_exec", "cerebro_db.training.functions:imported", "pip:main",
        "keras.losses", "keras.losses:", ":log_cosh", "keras.losses:a.b", "keras..losses:a",
        "keras.losses:__class__", "keras.__init__:a", "keras.losses:log_cosh()", "keras.losses:log cosh",
        "../x:y", "/tmp/x.py:y", "no_such_package:f", "a" * 300 + ":b", "", "keras.losses:log_cosh\n",
    ],
)  # fmt: skip
def test_paths_that_lead_nowhere_good(path: str) -> None:
    with pytest.raises(InvalidArgument, match=r"path: got .*; allowed: "):
        distribution_of(path)


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("keras.losses:no_such", "cannot be imported: AttributeError"),
        ("keras.no_such:f", "cannot be imported: ModuleNotFoundError"),
        ("keras.losses:LogCosh", "is no function"),
        ("keras:losses", "is no function"),
    ],
)
def test_what_is_no_function(path: str, message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        imported(path)


def test_the_number_of_arguments_decides() -> None:
    assert places_of(lambda y_true, y_pred: 0) == 2
    assert places_of(lambda y_true, y_pred, axis=-1: 0) == 2
    assert places_of(lambda epoch: 0) == 1
    for function in (lambda: 0, lambda a, b, c: 0, lambda a, *, b: 0):
        with pytest.raises(InvalidArgument, match="allowed: "):
            places_of(function)


def test_names_in_parameters() -> None:
    params = parse_compile_params(
        "loss=custom.ours,optimizer='SGD',metrics=['custom.ours','custom.more','mae']"
    )
    assert params.loss.name == "custom.ours"
    assert [metric.label for metric in params.metrics] == ["ours", "more", "mean_absolute_error"]
    assert common_goal([outputs_of(params, [""])]) == "loss"
    fit = parse_fit_params("callbacks=[EarlyStopping('more', mode='max')]")
    callbacks.check(params, fit, validated=False)
    with pytest.raises(InvalidArgument, match="nobody knows whether more"):
        callbacks.check(
            params, parse_fit_params("callbacks=[EarlyStopping('more')]"), validated=False
        )
    (scheduler,) = parse_fit_params("callbacks=[LearningRateScheduler('custom.warm_up')]").callbacks
    assert scheduler.schedule is not None
    assert scheduler.schedule.name == "custom.warm_up"
    for wrong in (
        "custom.",
        "custom.a.b",
        "custom.__class__",
        "custom.Ours",
        "custom.ours(a=1)",
        "ours",
    ):
        with pytest.raises(InvalidArgument, match=r"custom\.|allowed|unknown|arguments"):
            parse_compile_params(f"loss='{wrong}',optimizer='SGD'")
    for name in ("mse", "adam", "AUC", "cosinedecay", "CTC"):
        assert is_taken(name)
    assert not is_taken("ours")


def test_a_registered_loss_trains_to_the_bits_of_the_same_loss_of_keras(
    recipe: Callable[..., Any], data: Data, registered: None
) -> None:
    states = [
        hop(recipe(net(), f"loss='{loss}',optimizer='Adam',metrics=['{loss}']"), data, None)[0]
        for loss in ("custom.ours", "log_cosh")
    ]
    assert states[0] == states[1]


def test_another_version_of_the_package_is_refused(registered: None) -> None:
    assert function_of("ours") is imported(LOG_COSH)
    assert know({"ours": Function(LOG_COSH, "keras", "0.1")})
    with pytest.raises(InvalidArgument, match=r"it was registered with keras 0\.1"):
        function_of("ours")
    assert know({})
    with pytest.raises(
        InvalidArgument, match=r"custom\.ours; allowed: a function that is registered"
    ):
        function_of("ours")


def test_scheduled_rates(registered: None) -> None:
    from cerebro_db.training.hop import scheduled_rate

    (scheduler,) = parse_fit_params("callbacks=[LearningRateScheduler(custom.plus)]").callbacks
    know({"plus": Function("keras.ops:add", *distribution_of("keras.ops:add"))})
    assert scheduled_rate(scheduler, 3, 0.5) == 2.5
