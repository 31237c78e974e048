"""Configurations come from grids, ranges and lists as MADlib's documentation shows."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cerebro_db.configs.frameworks import frameworks
from cerebro_db.configs.grids.model_selection import combine, generate
from cerebro_db.configs.grids.parameters import (
    ConfigurationText,
    parse_compile_params,
    parse_fit_params,
)
from cerebro_db.errors import CerebroError, InvalidArgument

COMPILE = """
    {'loss': ['categorical_crossentropy'],
     'optimizer_params_list': [ {'optimizer': ['Adam', 'SGD'], 'lr': [0.001, 0.01]} ],
     'metrics': ['accuracy']}
"""
FIT = " { 'batch_size': [64, 128],\n 'epochs': [10] } "
RANGES = """
    {'loss': ['categorical_crossentropy'],
     'optimizer_params_list': [
       {'optimizer': ['SGD'], 'lr': [0.0001, 0.001, 'log'],
        'momentum': [0.95, 0.99, 'log_near_one']},
       {'optimizer': ['Adam'], 'lr': [0.01, 0.1, 'log'], 'beta_1': [0.8, 0.9, 'linear']}],
     'metrics': ['accuracy'], 'l2': [1e-6, 1e-3, 'log']}
"""


def test_grid() -> None:
    rows = generate([1, 2], COMPILE, FIT, "grid")
    assert len(rows) == 16
    assert rows[0] == ConfigurationText(
        1,
        "optimizer='Adam(lr=0.001)',metrics=['accuracy'],loss='categorical_crossentropy'",
        "epochs=10,batch_size=64",
    )
    assert [row.model_id for row in rows] == [1] * 8 + [2] * 8
    assert [row.fit_params[-3:] for row in rows[:4]] == ["=64", "128", "=64", "128"]
    assert [row.compile_params[11:24] for row in rows[:8:2]] == [
        "Adam(lr=0.001", "Adam(lr=0.01)", "SGD(lr=0.001)", "SGD(lr=0.01)'",
    ]  # fmt: skip


def test_optimizers_with_parameters_of_their_own() -> None:
    grid = """{'loss': ['categorical_crossentropy'], 'optimizer_params_list': [
        {'optimizer': ['SGD']},
        {'optimizer': ['SGD'], 'lr': [0.0001, 0.001], 'momentum': [0.95]},
        {'optimizer': ['adam'], 'lr': [0.01, 0.1], 'epsilon': [1e-4]}], 'metrics': ['accuracy']}"""
    rows = generate([1, 2], grid, FIT)
    assert len(rows) == 20
    assert rows[0].compile_params.startswith("optimizer='SGD()',")
    assert rows[9].compile_params.startswith("optimizer='Adam(lr=0.1,epsilon=0.0001)'")


def test_regularisation_and_several_metrics() -> None:
    grid = """{'loss': ['mse'], 'optimizer': ['Adam(lr=0.1)', 'SGD'],
        'metrics': [['mae', "Huber" ], None], 'l2': [0.0, 1e-4], 'dropout': [0.5]}"""
    rows = generate([3], grid.replace(', "Huber" ', ", \"RootMeanSquaredError(name='r')\""), "{}")
    assert len(rows) == 8
    assert rows[1].compile_params == (
        "optimizer='Adam(lr=0.1)',metrics=['mae', \"RootMeanSquaredError(name='r')\"],loss='mse',"
        "l2=0.0001,dropout=0.5"
    )
    assert [m.label for m in parse_compile_params(rows[1].compile_params).metrics] == [
        "mean_absolute_error", "r",
    ]  # fmt: skip
    assert rows[0].fit_params == ""


def test_names_without_quotes() -> None:
    grid = "{'loss': [Huber(delta=2.0)], 'optimizer': [SGD], 'metrics': [AUC(curve='PR'), 'mse']}"
    rows = generate([1], grid, "{}")
    assert rows[0].compile_params == (
        "optimizer=SGD(),metrics=[AUC(curve='PR')],loss=Huber(delta=2.0)"
    )
    assert parse_compile_params(rows[1].compile_params).metrics[0].name == "MeanSquaredError"


def test_duplicates_are_left_out() -> None:
    grid = """{'loss': ['mse', 'mean_squared_error'], 'optimizer_params_list': [
        {'optimizer': ['SGD', 'sgd'], 'lr': [0.01, 0.010]}, {'optimizer': ['SGD']}]}"""
    assert len(generate([1], grid, "{'batch_size': [32, 32], 'verbose': [0, 1]}")) == 1


def test_duplicates_are_those_of_the_framework_of_a_model() -> None:
    """Without a rate, SGD takes 0.01 in Keras and 0.001 in torch."""
    texts = [f"loss='mse',optimizer='SGD({given})'" for given in ("", "lr=0.01", "lr=0.001")]
    known = {1: frameworks()["tensorflow"], 2: frameworks()["torch"]}
    wanted = [(1, texts[0]), (1, texts[2]), (2, texts[0]), (2, texts[1])]
    listed = combine([1, 2], texts, ["batch_size=8"], known)
    assert [(row.model_id, row.compile_params) for row in listed] == wanted
    grid = "{'loss': ['mse'], 'optimizer_params_list': [{'optimizer': ['SGD']}, {'optimizer': ['SGD'], 'lr': [0.01, 0.001]}]}"
    for search, count in (("grid", None), ("random", 4)):
        made = generate([1, 2], grid, "{'batch_size': [8]}", search, count, frameworks=known)
        assert [sum(row.model_id == one for row in made) for one in (1, 2)] == [2, 2]


def test_random() -> None:
    rows = generate(
        [1, 2], RANGES, "{'batch_size': [8, 64, 'log'], 'epochs': [1]}", "random", 20, 3
    )
    again = generate([1, 2], RANGES, "{'batch_size': [8, 64, 'log'], 'epochs': [1]}", "r", 20, 3)
    other = generate([1, 2], RANGES, "{'batch_size': [8, 64, 'log'], 'epochs': [1]}", "RAND", 20, 4)
    assert rows == again != other
    assert len(set(rows)) == 20
    for row in rows:
        params = parse_compile_params(row.compile_params)
        arguments = dict(params.optimizer.arguments)
        if params.optimizer.name == "SGD":
            assert 1e-4 <= arguments["learning_rate"] <= 1e-3
            assert 0.95 <= arguments["momentum"] <= 0.99
        else:
            assert 0.01 <= arguments["learning_rate"] <= 0.1
        assert params.l2 is not None
        assert 1e-6 <= params.l2 <= 1e-3
        assert 8 <= parse_fit_params(row.fit_params).batch_size <= 64


def test_random_without_state() -> None:
    rows = [generate([1], RANGES, FIT, "random", 5) for _ in range(2)]
    assert rows[0] != rows[1]


def test_log_near_one_prefers_values_near_one() -> None:
    grid = """{'loss': ['mse'], 'optimizer_params_list': [
        {'optimizer': ['SGD'], 'momentum': [0.9, 0.999, 'log_near_one']}]}"""
    rows = generate([1], grid, "{}", "random", 400, 0)
    found = [
        dict(parse_compile_params(row.compile_params).optimizer.arguments)["momentum"]
        for row in rows
    ]
    assert 0.4 < sum(value > 0.99 for value in found) / 400 < 0.6


def test_combine() -> None:
    compiles = [
        "loss='categorical_crossentropy',optimizer='Adam(lr=0.1)',metrics=['accuracy']",
        "loss='categorical_crossentropy', optimizer='Adam(lr=0.01)',metrics=['accuracy']",
        "optimizer='adam(lr=0.10)',metrics=['acc'],loss='categorical_crossentropy'",
    ]
    rows = combine([2, 1], compiles, ["batch_size=4,epochs=1", "batch_size=8,epochs=1"])
    assert len(rows) == 8
    assert rows[0] == ConfigurationText(2, compiles[0], "batch_size=4,epochs=1")
    assert rows[1] == ConfigurationText(2, compiles[0], "batch_size=8,epochs=1")
    assert rows[2].compile_params == compiles[1]


GENERATE_ERRORS = [
    ({"model_ids": [1, 1]}, "only once"),
    ({"model_ids": []}, "at least one"),
    ({"model_ids": None}, "at least one"),
    ({"model_ids": [None]}, "got NULL"),
    ({"model_ids": [2**40]}, "whole number"),
    ({"search_type": "annealing"}, "'grid' or 'random'"),
    ({"search_type": ""}, "'grid' or 'random'"),
    ({"search_type": None}, "got NULL"),
    ({"num_configs": 3}, "NULL for a grid"),
    ({"random_state": 3}, "NULL for a grid"),
    ({"compile_params_grid": RANGES}, "got a range"),
    ({"fit_params_grid": "{'batch_size': [1, 9, 'linear']}"}, "got a range"),
    ({"search_type": "random"}, "num_configs: got NULL"),
    ({"search_type": "random", "num_configs": 0}, "num_configs: got 0"),
    ({"search_type": "random", "num_configs": 3, "random_state": -1}, "random_state: got -1"),
    ({"search_type": "random", "num_configs": 50}, "only 16 different"),
    ({"fit_params_grid": "{'batch_sise': [32]}"}, "Did you mean 'batch_size'"),
    ({"fit_params_grid": "{'callbacks': ['x']}"}, "unknown callback 'x'"),
    ({"fit_params_grid": "{'batch_size': 32}"}, "must be a list"),
    ({"fit_params_grid": "{'batch_size': []}"}, "at least one value"),
    ({"fit_params_grid": "{'batch_size': [0]}"}, "from 1"),
    ({"fit_params_grid": "{'batch_size': [None]}"}, None),
    ({"fit_params_grid": None}, "must be a text"),
    ({"compile_params_grid": "{'optimizer': ['Adam'], 'los': ['mse']}"}, "Did you mean 'loss'"),
    ({"compile_params_grid": "{'loss': ['mse']}"}, "is missing"),
    ({"compile_params_grid": "{'optimizer_param_list': [{}]}"}, "mean 'optimizer_params_list'"),
    ({"compile_params_grid": "{'optimizer': ['Adam']}"}, "without loss"),
    ({"compile_params_grid": "{'optimizer_params_list': [], 'loss': ['mse']}"}, "list of dict"),
    ({"compile_params_grid": "{'optimizer_params_list': [{}], 'loss': ['mse']}"}, "dictionary"),
]


@pytest.mark.parametrize(("change", "message"), GENERATE_ERRORS)
def test_refused(change: dict[str, object], message: str | None) -> None:
    arguments = {
        "model_ids": [1, 2], "compile_params_grid": COMPILE, "fit_params_grid": FIT,
    } | change  # fmt: skip
    if message is None:
        assert generate(**arguments)  # type: ignore[arg-type]
        return
    with pytest.raises(InvalidArgument, match=message):
        generate(**arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("parameter", "message"),
    [
        ("'lrr': [0.1]", "Did you mean 'lr'"),
        ("'lr': [0.1, 0.2, 'lag']", "Did you mean 'log'"),
        ("'lr': [0.2, 0.1, 'log']", "low below high"),
        ("'lr': [0.1, 'log']", "low, high, distribution"),
        ("'lr': [0, 0.1, 'log']", "above 0"),
        ("'lr': [-1, 0.1, 'linear']", "from 0"),
        ("'lr': [0.1, 0.2, 'linear', 0]", "a step above 0"),
        ("'lr': [0.1, 0.2, 'linear', None]", "a step above 0"),
        ("'lr': ['a', 0.2, 'linear', 0.1]", "low below high"),
        ("'lr': [0.1, CosineDecay(0.1, 5), 'linear', 0.1]", "low below high"),
        ("'lr': [0.1, 0.2, 'linear', -0.1]", "a step above 0"),
        ("'lr': [0.1, 0.2, 'linear', 0.11]", "up to the distance of the bounds"),
        ("'lr': [0.1, 0.2, 'linear', 'log']", "a step above 0"),
        ("'lr': [0.1, 0.2, 'log', 0.05]", "after 'linear'"),
        ("'momentum': [0.5, 1, 'log_near_one']", "below 1"),
        ("'nesterov': [0, 1, 'linear']", "parameters that are numbers"),
        ("'decay': [-1, 1e-4, 'linear']", "from 0"),
        ("'schedule_decay': [0.1]", "no such argument"),
        ("'decay': [0.1], 'lr': [CosineDecay(0.1, 5)]", "allowed is one"),
    ],
)
def test_refused_optimizer_parameters(parameter: str, message: str) -> None:
    grid = f"{{'loss': ['mse'], 'optimizer_params_list': [{{'optimizer': ['SGD'], {parameter}}}]}}"
    with pytest.raises(InvalidArgument, match=message):
        generate([1], grid, FIT, "random", 2)


def test_schedules_and_layers_that_do_not_train() -> None:
    grid = (
        "{'loss': ['mse'], 'freeze': ['conv*', ['a', 'b'], None], 'optimizer_params_list': "
        "[{'optimizer': ['SGD'], 'lr': [0.1, ExponentialDecay(0.1, 5, decay_rate=0.9)]}]}"
    )
    found = [parse_compile_params(row.compile_params) for row in generate([1], grid, FIT)]
    assert {params.freeze for params in found} == {("conv*",), ("a", "b"), ()}
    schedules = {repr(params.optimizer.schedule) for params in found}
    assert len(found) == 6 * 2  # two fit parameters
    assert len(schedules) == 2


def test_several_optimizers_in_one() -> None:
    grid = (
        "{'loss': ['mse'], 'optimizer_params_list': [{'optimizer': ['MultiOptimizer'], 'optimizer_map': "
        "[OptimizerMap(Adam(0.1), {'.*bias': SGD(0.1)}), OptimizerMap(Adam(0.2))]}]}"
    )
    found = [parse_compile_params(row.compile_params) for row in generate([1], grid, FIT)]
    parts = {tuple(pattern for pattern, _ in one.optimizer.parts) for one in found}
    assert parts == {(".*bias", None), (None,)}
    with pytest.raises(InvalidArgument, match="unknown argument 'lr'"):
        generate([1], grid.replace("'optimizer_map'", "'lr': [0.1], 'optimizer_map'"), FIT)


def test_too_many() -> None:
    sizes = list(range(1, 600))
    grid = f"{{'loss': ['mse'], 'optimizer': ['Adam'], 'l2': {sizes}}}"
    with pytest.raises(InvalidArgument, match="at most 100000"):
        generate([1], grid, f"{{'batch_size': {sizes}}}")


@pytest.mark.parametrize(
    ("compiles", "fits", "message"),
    [
        ([], ["batch_size=1"], "compile_params_list: got no parameters"),
        (None, ["batch_size=1"], "compile_params_list"),
        (["loss='mse',optimizer='sgd'"], [None], "got NULL at position 1"),
        (["loss='mse',optimizer='sgd'"], ["batch_size=0"], "from 1"),
    ],
)
def test_refused_lists(compiles: list[str], fits: list[str], message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        combine([1], compiles, fits)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.sampled_from(["Adam", "SGD", "RMSprop", "Nope"]), min_size=1, max_size=3),
    st.lists(st.floats(-0.1, 1.0), min_size=1, max_size=4),
    st.lists(st.integers(0, 9), min_size=1, max_size=4),
)
def test_all_that_is_generated_parses(
    names: list[str], rates: list[float], sizes: list[int]
) -> None:
    grid = (
        f"{{'loss': ['mse'], 'optimizer_params_list': [{{'optimizer': {names}, 'lr': {rates}}}]}}"
    )
    try:
        rows = generate([7], grid, f"{{'batch_size': {sizes}}}")
    except CerebroError:
        assert "Nope" in names or min(rates) < 0 or min(sizes) < 1
        return
    meanings = {
        (parse_compile_params(r.compile_params), parse_fit_params(r.fit_params)) for r in rows
    }
    assert len(meanings) == len(rows) == len(set(names)) * len(set(rates)) * len(set(sizes))
