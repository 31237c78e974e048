"""What callbacks decide equals what those of Keras do, fed with the same epochs."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from cerebro_db.configs.functions.callbacks import CALLBACKS, monitor_of
from cerebro_db.configs.functions.metrics import METRICS
from cerebro_db.configs.functions.optimizers import SCHEDULES
from cerebro_db.configs.grids.parameters import parse_compile_params, parse_fit_params
from cerebro_db.core.events import Verdict
from cerebro_db.decide.callbacks import decide
from cerebro_db.errors import ConfigurationFailed, InvalidArgument
from tests.training.conftest import Data, hop, net

STOPPING = [
    "EarlyStopping('loss')",
    "EarlyStopping('loss', patience=2)",
    "EarlyStopping('loss', patience=3, min_delta=0.05)",
    "EarlyStopping('loss', patience=3, min_delta=-0.05, restore_best_weights=True)",
    "EarlyStopping('loss', patience=2, baseline=0.4, restore_best_weights=True)",
    "EarlyStopping('loss', patience=1, start_from_epoch=4)",
    "EarlyStopping('loss', patience=1, start_from_epoch=4, restore_best_weights=True)",
    "EarlyStopping('loss', patience=2, mode='max', restore_best_weights=True)",
    "EarlyStopping('val_accuracy', patience=2)",
    "EarlyStopping('val_mae', patience=2, min_delta=0.01)",
    "EarlyStopping(patience=2, min_delta=0.1)",
]
REDUCING = [
    "ReduceLROnPlateau('loss', patience=1)",
    "ReduceLROnPlateau('loss', patience=2, factor=0.5, min_delta=0.0)",
    "ReduceLROnPlateau('loss', patience=0, factor=0.7, min_delta=0.1, min_lr=0.002)",
    "ReduceLROnPlateau('loss', patience=1, cooldown=2, factor=0.3)",
    "ReduceLROnPlateau('val_accuracy', patience=1, factor=0.9)",
    "ReduceLROnPlateau('val_loss', mode='max', patience=1, factor=0.97, min_lr=0.009)",
]
PARAMS = "loss='mse',optimizer='Adam(lr=0.01)',metrics=['accuracy',MeanAbsoluteError(name='mae')]"


def series(seed: int, epochs: int = 14) -> list[tuple[int, dict[str, float]]]:
    """Epochs with values that are often equal, or apart by less than float32 can tell."""
    generator = np.random.default_rng(seed)
    names = ("loss", "accuracy", "mae", "val_loss", "val_accuracy", "val_mae")
    logs = []
    for epoch in range(1, epochs + 1):
        values = (
            np.round(generator.random(len(names)), 1) + generator.integers(0, 3, len(names)) * 1e-9
        )
        logs.append((epoch, dict(zip(names, values.tolist(), strict=True))))
    if seed % 4 == 0:  # not everything is measured after every epoch
        logs = [pair for pair in logs if pair[0] % 2 == 0]
    if seed % 5 == 0:
        logs[seed % len(logs)][1]["loss"] = math.nan
    return logs


@pytest.fixture(scope="module")
def keras_model() -> Any:
    """A model that Keras' callbacks can act on."""
    import keras

    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile(keras.optimizers.Adam(0.01), "mse", metrics=["accuracy", "mae"])
    model.fit(np.zeros((2, 2)), np.zeros(2), verbose=0)  # metrics exist from now on
    return model


def by_keras(model: Any, text: str, history: list[tuple[int, dict[str, float]]]) -> Verdict:
    """What the callback of Keras makes of a history; the weights are the number of the epoch."""
    import keras

    (spec,) = parse_fit_params(f"callbacks=[{text}]").callbacks
    callback = getattr(keras.callbacks, spec.name)(**spec.all_arguments())
    callback.set_model(model)
    model.optimizer.learning_rate, model.stop_training = 0.01, False
    callback.on_train_begin()
    stopped = None
    for epoch, logs in history:
        model.set_weights([np.full((2, 1), epoch), np.zeros(1)])
        callback.on_epoch_end(epoch - 1, dict(logs))
        if model.stop_training:
            stopped = epoch
            break
    last = history[-1][0] if stopped is None else stopped
    callback.on_train_end()
    restored = int(model.get_weights()[0][0, 0])
    rate = float(model.optimizer.learning_rate.numpy())
    if spec.name == "ReduceLROnPlateau":
        return Verdict(learning_rate=None if rate == float(np.float32(0.01)) else rate)
    assert restored == last or spec.all_arguments()["restore_best_weights"]
    best = None if callback.best is None else callback.best_epoch + 1
    return Verdict(stopped, best, restored if callback.restore_best_weights and best else None)


@pytest.mark.parametrize("text", STOPPING + REDUCING)
@pytest.mark.filterwarnings("ignore:Early stopping conditioned", "ignore:Learning rate reduction")
def test_verdicts_are_those_of_keras(keras_model: Any, text: str) -> None:
    params, fit = parse_compile_params(PARAMS), parse_fit_params(f"callbacks=[{text}]")
    expected = [by_keras(keras_model, text, series(seed)) for seed in range(8)]
    assert [decide(params, fit, series(seed)) for seed in range(8)] == expected
    assert set(expected) != {Verdict()}


@pytest.mark.parametrize("name", ["EarlyStopping", "ReduceLROnPlateau", "LearningRateScheduler"])
def test_arguments_are_those_of_keras_in_their_places(name: str) -> None:
    import keras

    parameters = inspect.signature(getattr(keras.callbacks, name)).parameters.values()
    theirs = [(p.name, p.default) for p in parameters if p.kind is not p.VAR_KEYWORD]
    ours = [(argument.name, argument.default) for argument in CALLBACKS[name].arguments]
    assert [pair for pair in ours if pair[0] != "schedule"] == [
        pair for pair in theirs if pair[0] != "schedule"
    ]


def test_which_way_is_better_as_keras_tells_it() -> None:
    import keras

    for name, metric in METRICS.items():
        if name == "accuracy":
            continue
        values = {"num_classes": 2, "target_class_ids": [0]}
        given = {a.name: values.get(a.name, 0.5) for a in metric.arguments if a.required}
        told = getattr(getattr(keras.metrics, name)(**given), "_direction", None)
        if told is None:
            with pytest.raises(InvalidArgument, match="mode='max' or mode='min'"):
                monitor_of("val_m", "auto", {"m": name}, validated=True, what="c")
        else:
            monitor = monitor_of("val_m", "auto", {"m": name}, validated=True, what="c")
            assert monitor.more_is_better == (told == "up"), name


@pytest.mark.parametrize("optimizer", ["SGD", "Adam", "AdamW(lr=0.3)", "Ftrl(lr=1e-9)"])
def test_the_learning_rate_is_reduced_from_what_the_optimizer_has(optimizer: str) -> None:
    from cerebro_db.training.backends.tensorflow.scalars import scalars_of

    params = parse_compile_params(f"loss='mse',optimizer='{optimizer}'")
    fit = parse_fit_params("callbacks=[ReduceLROnPlateau('loss', patience=1, factor=0.9)]")
    flat = [(epoch, {"loss": 1.0}) for epoch in (1, 2)]
    rate = scalars_of(params.optimizer).learning_rate
    assert rate is not None
    assert decide(params, fit, flat).learning_rate == float(np.float32(rate * 0.9))


SCHEDULED = [
    "CosineDecay(0.1, 3, alpha=0.1, warmup_target=0.2, warmup_steps=2)",
    "CosineDecayRestarts(0.1, 2)",
    "ExponentialDecay(0.1, 2, 0.7, staircase=True)",
    "InverseTimeDecay(0.1, 1, 0.5)",
    "PiecewiseConstantDecay([1, 3], [0.1, 0.05, 0.01])",
    "PolynomialDecay(0.1, 4, power=2.0)",
]


@pytest.mark.parametrize("schedule", SCHEDULED)
def test_schedulers_are_evaluated_by_epoch_as_keras_counts_them(schedule: str) -> None:
    import keras

    from cerebro_db.training.backends.tensorflow.models import make_schedule
    from cerebro_db.training.hop import scheduled_rate

    (spec,) = parse_fit_params(f"callbacks=[LearningRateScheduler({schedule})]").callbacks
    assert spec.schedule is not None
    made = make_schedule(spec.schedule)
    callback = keras.callbacks.LearningRateScheduler(lambda epoch: float(made(epoch)))
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    callback.set_model(model)
    for epoch in range(6):
        callback.on_epoch_begin(epoch)
        rate = np.float32(scheduled_rate(spec, epoch + 1, 0.1))
        assert rate == model.optimizer.learning_rate.numpy()
    assert len(SCHEDULED) == len(SCHEDULES)


def test_a_rate_that_is_no_number_fails_the_configuration() -> None:
    from cerebro_db.training.hop import scheduled_rate

    (spec,) = parse_fit_params(
        "callbacks=[LearningRateScheduler(ExponentialDecay(1.0, 1, 1e30))]"
    ).callbacks
    with pytest.raises(ConfigurationFailed, match="learning rate inf for epoch 5"):
        scheduled_rate(spec, 5, 0.1)


def test_a_hop_takes_the_rate_of_the_task_and_keeps_it(
    recipe: Callable[..., Any], data: Data
) -> None:
    from dataclasses import replace

    from cerebro_db.training import state as states
    from cerebro_db.training.hop import HopTask, at_rate
    from cerebro_db.training.state import LEARNING_RATE
    from tests.training.conftest import order_of

    given = recipe(net(), "loss='categorical_crossentropy',optimizer='SGD(lr=0.5)'")
    state = states.from_bytes(hop(given, data, None)[0])
    task = HopTask(given, order_of(5, 2, 0), data.buffers, (1, "training", 0), 7, False)
    assert at_rate(state, task)[LEARNING_RATE] == np.float32(0.5)
    assert at_rate(state, replace(task, learning_rate=0.1))[LEARNING_RATE] == np.float32(0.1)
    fit = parse_fit_params("callbacks=[LearningRateScheduler(ExponentialDecay(0.4, 1, 0.5))]")
    task = replace(task, recipe=replace(given, fit_params=fit))
    assert at_rate(state, task)[LEARNING_RATE] == np.float32(0.5)  # within an epoch
    task = replace(task, begins_epoch=True)
    assert at_rate(state, task)[LEARNING_RATE] == np.float32(0.2)
