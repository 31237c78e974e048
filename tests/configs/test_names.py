"""The tables of names agree with the installed Keras (which this test imports, so it is slow)."""

from __future__ import annotations

import inspect
import os
from typing import Any

import numpy as np
import pytest

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
keras = pytest.importorskip("keras")

from cerebro_db.configs.arguments import (  # noqa: E402
    Argument,
    Target,
    with_defaults,
)
from cerebro_db.configs.functions.losses import LOSSES  # noqa: E402
from cerebro_db.configs.functions.metrics import (  # noqa: E402
    AVERAGE,
    METRICS,
    POSITIVE_CLASS,
)
from cerebro_db.configs.functions.optimizers import (  # noqa: E402
    OPTIMIZERS,
    REFUSED_ARGUMENTS,
    SCHEDULES,
)
from cerebro_db.errors import InvalidArgument  # noqa: E402

pytestmark = pytest.mark.slow

NOT_ARGUMENTS = {"self", "kwargs", "name", "dtype"} | set(REFUSED_ARGUMENTS)


def signature(cls: type) -> dict[str, Any]:
    parameters = inspect.signature(cls.__init__).parameters.values()
    return {p.name: p.default for p in parameters if p.name not in NOT_ARGUMENTS}


def check_arguments(cls: type, arguments: tuple[Argument, ...]) -> None:
    expected = signature(cls)
    ours = {argument.name: argument for argument in arguments if argument.name != "name"}
    assert set(ours) == set(expected), cls
    for name, default in expected.items():
        if default is inspect.Parameter.empty:
            assert ours[name].required
        else:
            assert ours[name].default == default, (cls, name)
            assert ours[name].validated(default, "default") == default


def classes(module: Any, base: type) -> set[str]:
    found = {n for n in dir(module) if inspect.isclass(getattr(module, n))}
    return {n for n in found if issubclass(getattr(module, n), base)}


def test_every_optimizer_is_known() -> None:
    there = classes(keras.optimizers, keras.optimizers.Optimizer)
    assert there == set(OPTIMIZERS) | set(OPTIMIZERS.refused)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizer(name: str) -> None:
    cls = getattr(keras.optimizers, name)
    check_arguments(cls, OPTIMIZERS[name].arguments)
    cls(**with_defaults(OPTIMIZERS[name].arguments, ()))
    check_places(cls, [a.name for a in OPTIMIZERS[name].arguments[: OPTIMIZERS[name].by_place]])


def check_places(cls: type, names: list[str]) -> None:
    assert names == list(inspect.signature(cls).parameters)[: len(names)]


def test_every_schedule_is_known() -> None:
    module = keras.optimizers.schedules
    assert classes(module, module.LearningRateSchedule) - {"LearningRateSchedule"} == set(SCHEDULES)


@pytest.mark.parametrize("name", SCHEDULES)
def test_schedule(name: str) -> None:
    cls, schedule = getattr(keras.optimizers.schedules, name), SCHEDULES[name]
    check_arguments(cls, schedule.arguments)
    check_places(cls, [a.name for a in schedule.arguments[: schedule.by_place]])


def test_every_loss_is_known() -> None:
    there = classes(keras.losses, keras.losses.Loss)
    assert there == set(LOSSES) | set(LOSSES.refused)


@pytest.mark.parametrize("name", LOSSES)
def test_loss(name: str) -> None:
    loss = LOSSES[name]
    check_arguments(getattr(keras.losses, name), loss.arguments)
    getattr(keras.losses, name)(**with_defaults(loss.arguments, ()))
    for alias in loss.names:
        assert LOSSES.find(alias, "loss") is loss


def test_every_metric_is_known() -> None:
    there = classes(keras.metrics, keras.metrics.Metric) - {"Accuracy"}
    assert there == (set(METRICS) | set(METRICS.refused)) - {"accuracy"}


EXAMPLE_VALUES = {
    "num_classes": 3, "target_class_ids": (0, 2), "recall": 0.5, "precision": 0.5,
    "sensitivity": 0.5, "specificity": 0.5,
}  # fmt: skip


def of_keras(name: str) -> tuple[Argument, ...]:
    """The arguments of a metric that are those of Keras; others choose what it is given."""
    own = {POSITIVE_CLASS} | ({AVERAGE} if name not in ("F1Score", "FBetaScore") else set())
    return tuple(one for one in METRICS[name].arguments if one.name not in own)


def built(name: str) -> Any:
    arguments = of_keras(name)
    needed = [(a.name, EXAMPLE_VALUES[a.name]) for a in arguments if a.required]
    values = with_defaults(arguments, needed)
    if name in ("IoU", "MeanIoU"):
        values["sparse_y_pred"] = False
    return getattr(keras.metrics, name)(**values)


def example(target: Target, rows: int) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(rows)
    scores = generator.random((rows, 3)).astype("float32")
    predicted = scores / scores.sum(axis=1, keepdims=True)
    ids = generator.integers(0, 3, rows)
    if target is Target.IDS:
        return ids, predicted
    if target is Target.FLOAT:
        return generator.random((rows, 3)).astype("float32"), predicted
    return np.eye(3, dtype="float32")[ids], predicted


@pytest.mark.parametrize("name", sorted(set(METRICS) - {"accuracy"}))
def test_metric_is_additive(name: str) -> None:
    metric = METRICS[name]
    check_arguments(getattr(keras.metrics, name), of_keras(name))
    parts, whole = (built(name), built(name)), built(name)
    for rows, part in zip((40, 23), parts, strict=True):
        part.update_state(*example(metric.target, rows))
        whole.update_state(*example(metric.target, rows))
    state = zip(parts[0].variables, parts[1].variables, whole.variables, strict=True)
    for one, two, both in state:
        total = np.asarray(one) + np.asarray(two)
        np.testing.assert_allclose(total, np.asarray(both), rtol=1e-5)
    for alias in metric.names:
        assert METRICS.find(alias, "metrics") is metric


def test_names_are_found_as_people_write_them() -> None:
    for text in ("adam", "ADAM", "keras.optimizers.Adam", "optimizers.Adam"):
        assert OPTIMIZERS.find(text, "optimizer").name == "Adam"
    assert LOSSES.find("losses.categorical_crossentropy", "loss").name == "CategoricalCrossentropy"
    assert LOSSES.find("MSE", "loss").name == "MeanSquaredError"
    assert METRICS.find("acc", "metrics").name == "accuracy"
    assert METRICS.find("tf.keras.metrics.AUC", "metrics").name == "AUC"


@pytest.mark.parametrize(
    ("find", "name", "message"),
    [
        (OPTIMIZERS.find, "Addam", "Did you mean 'Adam'"),
        (OPTIMIZERS.find, "os.Adam", "keras.optimizers"),
        (OPTIMIZERS.find, "qqq", "Allowed: Adadelta"),
        (OPTIMIZERS.find, "LossScaleOptimizer", "float16"),
        (LOSSES.find, "categorical_crossentrpy", "Did you mean 'categorical_crossentropy'"),
        (LOSSES.find, "CTC", "varying length"),
        (METRICS.find, "acuracy", "Did you mean 'accuracy'"),
        (METRICS.find, "Mean", "does not compare"),
    ],
)
def test_wrong_names(find: Any, name: str, message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        find(name, "what")
