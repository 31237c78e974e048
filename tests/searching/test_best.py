"""Which trials are the best ones."""

from __future__ import annotations

import math
from typing import Any

import pytest

from cerebro_db.core.search import Objective, SearchSpec
from cerebro_db.core.spec import Space
from cerebro_db.models.best import best_trials
from cerebro_db.postgres.catalog.trials import TrialRow

ACCURACY, LOSS = Objective("accuracy", "validation", True), Objective("loss", "validation", False)


def spec(*objectives: Objective) -> SearchSpec:
    return SearchSpec("random", {}, Space((1,), "", ""), objectives)


def trial(key: int, *values: float, status: str = "finished") -> TrialRow:
    return TrialRow(key, 1, 1, "", "", {}, status, None, None, 1, 1, values, "")


def keys(found: list[TrialRow]) -> list[int]:
    return [one.mst_key for one in found]


@pytest.mark.parametrize(("n", "expected"), [(None, [2]), (1, [2]), (3, [2, 4, 1]), (9, [2, 4, 1])])
def test_one_objective(n: int | None, expected: list[int]) -> None:
    trials = [
        trial(1, 0.5), trial(2, 0.9), trial(3), trial(4, 0.9), trial(5, math.nan),
        trial(6, 1.0, status="failed"), trial(7, 1.0, status="cancelled"), trial(8, math.inf),
    ]  # fmt: skip
    assert keys(best_trials(spec(ACCURACY), trials, n)) == expected
    assert keys(best_trials(spec(LOSS), trials, 1)) == [1]


@pytest.mark.parametrize(
    ("n", "expected"), [(None, [2, 1]), (1, [2]), (2, [2, 1]), (3, [2, 1, 3]), (4, [2, 1, 3, 4])]
)
def test_several_objectives_give_the_pareto_set(n: int | None, expected: list[int]) -> None:
    trials = [trial(1, 0.5, 1.0), trial(2, 0.9, 2.0), trial(3, 0.5, 2.0), trial(4, 0.4, 2.5)]
    assert keys(best_trials(spec(ACCURACY, LOSS), trials, n)) == expected


def test_nothing_is_the_best_of_nothing() -> None:
    nothing: list[Any] = []
    assert best_trials(spec(ACCURACY), nothing, 3) == []
