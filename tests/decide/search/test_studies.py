"""What Optuna computes of trials."""

from __future__ import annotations

import itertools

import optuna
import pytest

from cerebro_db.core.search import Objective, SearchSpec
from cerebro_db.core.spec import Space
from cerebro_db.decide.search.sampling import Chance
from cerebro_db.decide.search.space import Explorer
from cerebro_db.decide.search.studies import Measured, add_to_study, directions, importances

COMPILE = (
    "{'loss': ['mse', 'mae'], 'optimizer_params_list': ["
    "{'optimizer': ['Adam'], 'lr': [0.001, 0.1, 'log'], 'beta_1': [0.8, 0.99, 'log_near_one']},"
    " {'optimizer': ['SGD'], 'lr': [0.01, 1.0, 'log']}]}"
)
SPACE = Space((1, 2), COMPILE, "{'batch_size': [8, 64, 'linear'], 'epochs': [1]}")
SPEC = SearchSpec("random", {}, SPACE, (Objective("loss", "training", False),))


def trials(count: int, value) -> list[Measured]:
    """Some draws of the space, with a value that depends on their parameters."""
    chance = Chance(Explorer(SPACE), 0)
    drawn = (chance.propose(number, 0) for number in itertools.count(1))
    return [Measured(one, (value(one),)) for one in itertools.islice(drawn, count)]


def by_name(found) -> dict[str, tuple[float, int]]:
    return {one.parameter: (one.value, one.trials) for one in found}


def test_what_matters_is_found() -> None:
    found = importances(SPEC, trials(60, lambda one: one["batch_size"] + (one["loss"] == "mae")))
    assert found[0].parameter == "batch_size"
    assert found[0].value > 0.9
    known = by_name(found)
    common = ("batch_size", "loss", "model_id", "optimizer")
    assert sum(known[name][0] for name in common) == pytest.approx(1.0)
    assert {known[name][1] for name in common} == {60}
    # A single value explains nothing, and is not there.
    assert "epochs" not in known


def test_what_belongs_to_an_optimizer_is_compared_among_its_trials() -> None:
    made = trials(
        60, lambda one: one.get("Adam.lr", one.get("SGD.lr")) * (1 + 9 * ("Adam.lr" in one))
    )
    known = by_name(importances(SPEC, made))
    having = sum("Adam.lr" in one.parameters for one in made)
    assert known["Adam.lr"][1] == having
    assert known["SGD.lr"][1] == 60 - having
    assert known["Adam.lr"][0] > 0.5
    assert known["Adam.beta_1"][0] < 0.3  # searched by its distance from one, and named as it is


def test_the_same_each_time() -> None:
    made = trials(30, lambda one: one["batch_size"] * one["model_id"])
    assert importances(SPEC, made) == importances(SPEC, made)


def test_equal_values_explain_nothing() -> None:
    found = importances(SPEC, trials(10, lambda one: 1.0))
    assert {one.value for one in found} == {0.0}


def test_a_study_has_all_trials() -> None:
    made = trials(4, lambda one: 0.5)
    made[1] = Measured(made[1].parameters, (), {1: 0.7, 2: 0.6}, "PRUNED", {"mst_key": 2})
    made[2] = Measured({}, (0.1,), {1: 0.1})  # of no space
    made[3] = Measured(made[3].parameters, (), state="FAIL")
    study = optuna.create_study(directions=directions(SPEC))
    add_to_study(study, SPEC, made)
    assert [one.state.name for one in study.trials] == ["COMPLETE", "PRUNED", "COMPLETE", "FAIL"]
    assert study.trials[1].intermediate_values == {1: 0.7, 2: 0.6}
    assert study.trials[1].user_attrs == {"mst_key": 2}
    assert study.best_value == 0.1
    plain = {
        name: one for name, one in study.trials[0].params.items() if not name.startswith("1 - ")
    }
    assert plain.items() <= dict(made[0].parameters).items()
