"""Hyperparameters out of parameter texts, as axes, and how much they explain."""

from __future__ import annotations

import math
import random

import pytest

from cerebro_db.watching.hyperparameters import (
    MOST_FOR_FANOVA,
    axes,
    hyperparameters,
    importance,
    varying,
)
from cerebro_db.watching.reading import Standing


def standing(key: int, compile_params: str, fit_params: str) -> Standing:
    return Standing(
        key, 1, 1, compile_params, fit_params, "finished", 1, (), (), None, (), 0.0, None
    )


def test_names_of_one_thing_are_one_name() -> None:
    text = "optimizer='Adam(lr=0.1,beta_1=0.8)',metrics=['accuracy'],loss='mse',l2=0.5"
    found = hyperparameters(standing(7, text, "batch_size=8,epochs=1"))
    assert found == {
        "model_id": 1, "optimizer": "Adam", "learning_rate": 0.1, "beta_1": 0.8, "loss": "mse",
        "l2": 0.5, "batch_size": 8, "epochs": 1,
    }  # fmt: skip
    assert (
        hyperparameters(standing(1, "optimizer='SGD(0.5)',loss='mse'", ""))["learning_rate"] == 0.5
    )


@pytest.mark.parametrize(
    "text", ["", "((", "import os", "optimizer='Adam(((',loss='mse'", "x" * 70000]
)
def test_whatever_a_text_holds_it_is_read_or_left_out(text: str) -> None:
    assert hyperparameters(standing(1, text, text))["model_id"] == 1


def test_what_varies_becomes_axes() -> None:
    found = [
        {"model_id": 2, "optimizer": "Adam", "learning_rate": 0.1, "batch_size": 8},
        {"model_id": 10, "optimizer": "SGD", "learning_rate": 0.0001, "batch_size": 8},
        {
            "model_id": 2,
            "optimizer": "SGD",
            "learning_rate": 0.01,
            "batch_size": 8,
            "momentum": 0.5,
        },
    ]
    assert varying(found) == ["model_id", "optimizer", "learning_rate", "momentum"]
    model, optimizer, rate, momentum = axes(found)
    assert (model.categories, model.values) == (("2", "10"), (0.0, 1.0, 0.0))
    assert (optimizer.categories, optimizer.values) == (("Adam", "SGD"), (0.0, 1.0, 1.0))
    assert (rate.is_log, rate.values, rate.categories) == (True, (0.1, 0.0001, 0.01), ())
    assert momentum.values == (None, None, 0.5)


@pytest.mark.parametrize("count", [40, MOST_FOR_FANOVA + 1])
def test_what_decides_is_important(count: int) -> None:
    generator = random.Random(3)
    board = [
        standing(
            key,
            f"optimizer='SGD(lr={10 ** generator.uniform(-4, 0)})',loss='mse'",
            f"batch_size={generator.choice([8, 16, 32])}",
        )
        for key in range(count)
    ]
    scores = {one.mst_key: math.log10(hyperparameters(one)["learning_rate"]) for one in board}
    method, found = importance(board, scores)
    assert method == ("fANOVA" if count <= MOST_FOR_FANOVA else "one-way ANOVA")
    assert [one.parameter for one in found] == ["learning_rate", "batch_size"]
    assert found[0].value > 0.8


def test_of_too_few_nothing_is_said() -> None:
    board = [standing(key, 0.1, 8) for key in range(3)]
    assert importance(board, dict.fromkeys(range(3), 1.0)) == ("", [])
    assert importance([*board, standing(4, 0.1, 8)], {}) == ("", [])
