"""Tables that one statement is measured with: their splits, and the scores of predictions."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from benchmarks.automl import sides
from benchmarks.automl.tables import Table, load


def test_the_split_is_the_same_each_time() -> None:
    first, second = load("cancer"), load("cancer")
    assert len(first.train) + len(first.test) == 569
    assert 80 < len(first.test) < 150
    pd.testing.assert_frame_equal(first.test, second.test)
    assert first.categories == []
    assert len(first.columns) == 30


def table(metric: str, values: list[object]) -> Table:
    rows = pd.DataFrame({"x": range(len(values)), "y": values})
    return Table("small", metric, rows, rows)


def test_scores() -> None:
    numbers = table("rmse", [1.0, 2.0])
    assert sides.score(numbers, np.array([1.0, 4.0])) == pytest.approx(np.sqrt(2))
    classes = table("accuracy", ["a", "b", "c", "a"])
    found = np.eye(3)[[0, 1, 1, 0]]
    assert sides.score(classes, found) == 0.75
    two = table("auc", ["no", "no", "yes", "yes"])
    second = np.array([0.1, 0.6, 0.5, 0.9])
    assert sides.score(two, np.stack([1 - second, second], axis=1)) == 0.75
