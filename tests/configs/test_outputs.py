"""Losses, metrics and weights of models with several outputs."""

from __future__ import annotations

import pytest

from cerebro_db.configs.grids.grid import parse_compile_grid
from cerebro_db.configs.grids.outputs import (
    loss_names,
    metric_names,
    output_names,
    outputs_of,
    with_all_metrics,
)
from cerebro_db.configs.grids.parameters import compile_text, parse_compile_params, parse_fit_params
from cerebro_db.decide import callbacks
from cerebro_db.errors import InvalidArgument

NAMES = ("kind", "size")


def outputs(text: str, names: tuple[str, ...] = NAMES):
    return outputs_of(parse_compile_params(f"optimizer='SGD()',{text}"), names)


@pytest.mark.parametrize(
    "loss",
    [
        "['sparse_categorical_crossentropy', 'mse']",
        "{'size': 'mse', 'kind': SparseCategoricalCrossentropy()}",
    ],
)
@pytest.mark.parametrize(
    "metrics",
    ["[['accuracy'], ['mae', 'mse']]", "{'size': ['mae', 'mse'], 'kind': 'acc'}"],
)
@pytest.mark.parametrize("weights", ["[1, 0.25]", "{'size': 0.25}"])
def test_lists_and_names_mean_the_same(loss: str, metrics: str, weights: str) -> None:
    found = outputs(f"loss={loss},metrics={metrics},loss_weights={weights}")
    assert [output.name for output in found] == ["kind", "size"]
    assert loss_names(found) == "SparseCategoricalCrossentropy, MeanSquaredError"
    assert [output.weight for output in found] == [1.0, 0.25]
    assert metric_names(found) == [
        "kind_accuracy", "size_mean_absolute_error", "size_mean_squared_error",
        "kind_loss", "size_loss",
    ]  # fmt: skip


def test_one_for_all() -> None:
    found = outputs("loss='mse',metrics=['mae']")
    assert loss_names(found) == "MeanSquaredError, MeanSquaredError"
    assert [output.weight for output in found] == [None, None]
    assert metric_names(found)[:2] == ["kind_mean_absolute_error", "size_mean_absolute_error"]
    as_in_keras = outputs("loss='mse',metrics=['mse', 'mae']")
    assert metric_names(as_in_keras)[:2] == ["kind_mean_squared_error", "size_mean_absolute_error"]
    only_one = outputs("loss='mse',metrics={'size': 'mae'}")
    assert metric_names(only_one) == ["size_mean_absolute_error", "kind_loss", "size_loss"]


def test_one_output_keeps_its_names() -> None:
    found = outputs("loss=['mse'],metrics=['mae', AUC(name='mine')],loss_weights=[2]", ("",))
    assert metric_names(found) == ["mean_absolute_error", "mine"]
    assert found[0].weight == 2.0


def test_outputs_of_one_layer_have_their_own_labels() -> None:
    found = outputs("loss='mse',metrics=['mae']", ("lstm", "lstm"))
    assert metric_names(found)[:2] == ["lstm_mean_absolute_error", "lstm_mean_absolute_error_1"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("loss=['mse']", "got 1 for the 2 outputs"),
        ("loss={'kind': 'mse'}", "got none for the output 'size'"),
        ("loss={'kind': 'mse', 'sise': 'mse'}", "'sise'; allowed: .*Did you mean 'size'"),
        ("loss='mse',metrics=['mae', 'mse', 'mape']", "got 3 for the 2 outputs"),
        ("loss='mse',metrics=[['mae']]", "got 1 for the 2 outputs"),
        ("loss='mse',metrics={'nobody': 'mae'}", "'nobody'; allowed"),
        ("loss='mse',loss_weights=[1]", "loss_weights: got 1 for the 2 outputs"),
        ("loss='mse',loss_weights=0.5", "a list of numbers, or a dictionary"),
    ],
)
def test_refused(text: str, message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        outputs(text)


def test_a_name_that_two_outputs_have_is_no_name() -> None:
    with pytest.raises(InvalidArgument, match="'lstm'; allowed"):
        outputs("loss={'lstm': 'mse'}", ("lstm", "lstm"))


def test_names_of_an_architecture() -> None:
    def functional(ends: object) -> dict[str, object]:
        return {"class_name": "Functional", "config": {"output_layers": ends}}

    assert output_names(functional([["a", 0, 0], ["b", 0, 0]])) == ("a", "b")
    assert output_names(functional(["a", 0, 0])) == ("a",)
    layers = [{"config": {}}, {"config": {"name": "last"}}]
    assert output_names({"class_name": "Sequential", "config": {"layers": layers}}) == ("last",)
    assert output_names({"class_name": "Sequential", "config": {"layers": []}}) == ("",)


def test_a_grid_has_lists_and_dictionaries_for_values() -> None:
    grid = parse_compile_grid(
        "{'loss': [['mse', 'mae'], {'kind': 'mae', 'size': 'mse'}], 'loss_weights': [[1, 2]],"
        "'metrics': [{'size': ['mae']}], 'optimizer': ['SGD()']}"
    )
    found = [parse_compile_params(compile_text(values)) for values in grid.combinations()]
    assert [loss_names(outputs_of(one, NAMES)) for one in found] == [
        "MeanSquaredError, MeanAbsoluteError",
        "MeanAbsoluteError, MeanSquaredError",
    ]
    assert {metric_names(outputs_of(one, NAMES))[0] for one in found} == {
        "size_mean_absolute_error"
    }


@pytest.mark.parametrize("monitor", ["size_mean_absolute_error", "kind_loss", "loss"])
def test_callbacks_monitor_losses_and_metrics_of_each_output(monitor: str) -> None:
    params = parse_compile_params("optimizer='SGD()',loss='mse',metrics={'size': ['mae']}")
    known = with_all_metrics(params, outputs_of(params, NAMES))
    stop = "callbacks=[EarlyStopping(monitor='val_{}', patience=1)]"
    fit = parse_fit_params(stop.format(monitor))
    callbacks.check(known, fit, validated=True)
    falls = [(epoch, {f"val_{monitor}": 9.0 - epoch}) for epoch in (1, 2, 3)]
    assert callbacks.decide(known, fit, falls).stopped_epoch is None
    history = [(epoch, {f"val_{monitor}": float(epoch)}) for epoch in (1, 2, 3)]
    assert callbacks.decide(known, fit, history).stopped_epoch == 2
    with pytest.raises(InvalidArgument, match="val_kind_accuracy"):
        callbacks.check(known, parse_fit_params(stop.format("kind_accuracy")), validated=True)
