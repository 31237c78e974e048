"""Greedy selection of ensembles."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import log_loss, mean_absolute_error, mean_squared_error, roc_auc_score

from cerebro_db.scoring.greedy import OF_CLASSES, OF_NUMBERS, selected

TRUTH = np.array([1.0, 2.0, 3.0, 4.0])


def numbers(*errors: float) -> np.ndarray:
    """Predictions that are off by so much."""
    return (TRUTH + errors)[:, np.newaxis]


def test_errors_that_cancel_each_other_are_joined() -> None:
    outputs = [numbers(1, 1, 1, 1), numbers(0.9, 2, 1, 1), numbers(-1, -1, -1, -1)]
    assert selected(outputs, TRUTH, OF_NUMBERS["rmse"], 5) == [1, 0, 1]


def test_a_model_that_is_added_again_counts_as_much_more() -> None:
    outputs = [numbers(1, 1, 1, 1), numbers(-2, -2, -2, -2)]
    assert selected(outputs, TRUTH, OF_NUMBERS["mae"], 5) == [2, 1]


def test_the_best_model_alone_where_no_mean_is_better() -> None:
    outputs = [numbers(0, 0, 0, 0), numbers(1, -1, 1, -1)]
    assert selected(outputs, TRUTH, OF_NUMBERS["rmse"], 10) == [1, 0]


def test_no_more_members_than_allowed() -> None:
    outputs = [numbers(1, 1, 1, 1), numbers(-2, -2, -2, -2)]
    assert sum(selected(outputs, TRUTH, OF_NUMBERS["mae"], 2)) <= 2


@pytest.mark.parametrize("seed", range(3))
def test_measures_are_those_of_scikit_learn(seed: int) -> None:
    generator = np.random.default_rng(seed)
    truth = generator.integers(0, 2, 200).astype(float)
    second = np.round(
        np.clip(0.4 * truth + generator.random(200) * 0.6, 0.01, 0.99), 2
    )  # ties, too
    found = np.stack([1 - second, second], axis=1)
    assert OF_CLASSES["auc"](found, truth) == pytest.approx(1 - roc_auc_score(truth, second))
    assert OF_CLASSES["loss"](found, truth) == pytest.approx(log_loss(truth, second))
    assert OF_CLASSES["accuracy"](found, truth) == pytest.approx(
        np.mean((second > 0.5) != (truth == 1))
    )
    column = second[:, np.newaxis]
    assert OF_NUMBERS["rmse"](column, truth) == pytest.approx(mean_squared_error(truth, second))
    assert OF_NUMBERS["mae"](column, truth) == pytest.approx(mean_absolute_error(truth, second))
