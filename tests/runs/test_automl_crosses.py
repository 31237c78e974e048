"""Interactions of pairs of columns, against analyses of variance whose truth is known."""

from __future__ import annotations

import random

import pytest

from cerebro_db.runs.automl.crosses import Cell, interaction


def cells_of(mean: object, rows: int = 50, deviation: float = 1.0) -> tuple[list[Cell], float]:
    """Cells of two columns of 6 and 8 values, and the variance; some cells have more rows than others."""
    draw = random.Random(7)
    cells, every = [], []
    for a in range(6):
        for b in range(8):
            count = rows + 20 * ((a + b) % 3)
            values = [mean(a, b) + draw.gauss(0, deviation) for _ in range(count)]  # type: ignore[operator]
            cells.append(Cell((str(a), str(b)), count, (sum(values),)))
            every += values
    middle = sum(every) / len(every)
    return cells, sum((one - middle) ** 2 for one in every) / len(every)


def test_effects_of_each_column_are_no_interaction() -> None:
    cells, variance = cells_of(lambda a, b: 3 * a - b * b)
    found = interaction(("a", "b"), cells, [variance])
    assert abs(found.share) < 0.002
    assert abs(found.score) < 4


def test_the_share_is_that_of_the_variance() -> None:
    """Of a target with 4 of variance between cells and 1 within them."""
    cells, variance = cells_of(lambda a, b: 2 if (a + b) % 2 else -2)
    found = interaction(("a", "b"), cells, [variance])
    assert found.share == pytest.approx(0.8, abs=0.02)
    assert found.score > 100
    assert (found.key, found.encoding) == ("a*b", "cross(10)")


def test_columns_that_go_together_are_no_interaction() -> None:
    """Each value of one column has few of the other: the same effect counts once."""
    draw = random.Random(1)
    cells, every = [], []
    for a in range(10):
        for b in range(max(0, a - 1), min(10, a + 2)):
            values = [a + b + draw.gauss(0, 1) for _ in range(40)]
            cells.append(Cell((str(a), str(b)), 40, (sum(values),)))
            every += values
    middle = sum(every) / len(every)
    variance = sum((one - middle) ** 2 for one in every) / len(every)
    found = interaction(("a", "b"), cells, [variance])
    assert abs(found.share) < 0.01


def test_a_constant_target_has_none() -> None:
    cells, _ = cells_of(lambda a, b: 1.0, deviation=0.0)
    found = interaction(("a", "b"), cells, [0.0])
    assert (found.share, found.score) == (0.0, 0.0)
