"""Contributions of columns to predictions, against exact Shapley values."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from psycopg2 import errors

from tests.models.conftest import OF_KIND, fitted


def contributions(db: Any, arguments: str) -> Any:
    db.fetch("DROP TABLE IF EXISTS parts")
    db.fetch(f"SELECT cerebro_contributions({arguments})")
    return db.fetch("SELECT * FROM parts ORDER BY 1, column_name")


def test_those_of_a_linear_net_are_exact(lines: Any) -> None:
    """The Shapley value of a column is its share less the mean of that in the background, whatever the orders."""
    rows = contributions(lines, "'line', 'lines', 'id', NULL, 'parts', samples := 400")
    truth = lines.fetch("SELECT id, 3 * a, -b, kind FROM lines ORDER BY id")
    shares = np.asarray([(a, b, 0.0, OF_KIND[kind]) for _, a, b, kind in truth])
    wanted = shares - shares.mean(axis=0)
    assert [row[3] for row in rows[:4]] == ["a", "b", "c", "kind"]
    found = np.asarray([row[4:] for row in rows], float).reshape(len(truth), 4, 3)
    np.testing.assert_allclose(found[:, :, 0], wanted, atol=1e-5)
    np.testing.assert_allclose(found[:, 0, 1], shares.sum(axis=1).mean(), atol=1e-5)
    np.testing.assert_allclose(found[:, 0, 2], shares.sum(axis=1), atol=1e-5)
    np.testing.assert_allclose(found[:, :, 0].sum(axis=1) + found[:, 0, 1], found[:, 0, 2], 0, 1e-9)
    assert {row[1:3] for row in rows} == {("y", None)}


def test_a_packed_table_may_be_the_background_and_the_rows(lines: Any) -> None:
    one, two = (
        contributions(
            lines,
            f"'line', {table}, 'parts', background_table := 'lines_packed', samples := 50, seed := 3",
        )
        for table in ("'lines', 'id', '*'", "'lines_packed', NULL, NULL")
    )
    assert len(one) == len(two) == 1600
    kept = {(row[3], round(row[4], 4), round(row[6], 4)) for row in one}
    assert kept == {(row[5], round(row[6], 4), round(row[8], 4)) for row in two}


def test_a_net_that_multiplies_columns_shares_fairly(lines: Any, network: Any) -> None:
    """Of a few background rows the exact values are those of all coalitions; those of the net are an estimate."""
    generator = np.random.default_rng(4)
    weights = generator.normal(size=6 * 4 + 4 + 4 * 2 + 2)
    net = network((6,), (4, "tanh"), (2, "softmax"))
    lines.fetch("CREATE TABLE signs AS SELECT id, a, b, c, kind, (y > 0)::text AS y FROM lines")
    lines.fetch(
        "SELECT cerebro_pack_columns('signs', 'signs_packed', 'y', 'a, b, c, kind', num_partitions := 1)"
    )
    fitted(lines, "bent", net, weights, "loss='sparse_categorical_crossentropy'", "signs_packed")
    lines.fetch("CREATE TABLE few AS SELECT * FROM signs WHERE id <= 5")
    lines.fetch("CREATE TABLE others AS SELECT * FROM signs WHERE id BETWEEN 6 AND 25")
    rows = contributions(
        lines, "'bent', 'few', 'id', NULL, 'parts', 'true', 'others', samples := 20"
    )
    found = np.asarray([row[4:] for row in rows], float).reshape(5, 4, 3)
    every = encoded(lines, "signs", "signs_packed")
    exact = [shapley(weights, every[place], every[5:25]) for place in range(5)]
    np.testing.assert_allclose(found[:, :, 0], exact, atol=0.03)
    assert np.abs(exact).max() > 0.1
    np.testing.assert_allclose(found[:, :, 0].sum(axis=1) + found[:, 0, 1], found[:, 0, 2], 0, 1e-9)
    chances = bent(weights, every[:5])[:, 1]
    np.testing.assert_allclose(found[:, 0, 2], chances, atol=1e-5)
    best = contributions(lines, "'bent', 'few', 'id', NULL, 'parts'")
    assert [row[2] for row in best[::4]] == ["true" if one > 0.5 else "false" for one in chances]


def encoded(db: Any, table: str, packed: str) -> np.ndarray:
    db.fetch(f"SELECT cerebro_encode('{table}', '{packed}', 'encoded', 'id')")
    rows = db.fetch("SELECT features FROM encoded ORDER BY id")
    return np.asarray([row[0] for row in rows], float)


def bent(weights: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Probabilities of the net with a layer of tanh."""
    first, bias, second, last = np.split(weights, [24, 28, 36])
    logits = np.tanh(rows @ first.reshape(6, 4) + bias) @ second.reshape(4, 2) + last
    values = np.exp(logits - logits.max(axis=1, keepdims=True))
    return values / values.sum(axis=1, keepdims=True)


def shapley(weights: np.ndarray, row: np.ndarray, background: np.ndarray) -> list[float]:
    """Exact values of the columns for the second class, over all coalitions."""
    columns = [slice(0, 1), slice(1, 2), slice(2, 3), slice(3, 6)]

    def worth(known: tuple[int, ...]) -> float:
        mixed = background.copy()
        for column in known:
            mixed[:, columns[column]] = row[columns[column]]
        return float(bent(weights, mixed)[:, 1].mean())

    found = []
    for column in range(4):
        others = [one for one in range(4) if one != column]
        total = 0.0
        for size in range(4):
            share = math.factorial(size) * math.factorial(3 - size) / math.factorial(4)
            for known in itertools.combinations(others, size):
                total += share * (worth((*known, column)) - worth(known))
        found.append(total)
    return found


BAD = {
    "'line', 'lines', NULL, NULL, 'parts'": (errors.InvalidParameterValue, "id_col: got NULL"),
    "'line', 'lines', 'id', NULL, 'parts', 'x'": (
        errors.InvalidParameterValue,
        "class_value: got 'x'; allowed: NULL, as 'y' is a number",
    ),
    "'line', 'lines', 'id', NULL, 'parts', samples := 1001": (
        errors.InvalidParameterValue,
        "samples: got 1001; allowed: 1 to 1000",
    ),
    "'line', 'lines', 'id', NULL, 'parts', background_table := 'nothing'": (
        errors.UndefinedTable,
        "background_table: .*nothing",
    ),
    "'line', 'lines', 'id', NULL, 'parts', background_table := 'empty'": (
        errors.DataException,
        "background_table: empty has no rows",
    ),
}


@pytest.mark.parametrize("arguments", BAD)
def test_bad_calls_are_refused(lines: Any, arguments: str) -> None:
    kind, message = BAD[arguments]
    lines.fetch(
        "DROP TABLE IF EXISTS parts, empty; CREATE TABLE empty AS SELECT * FROM lines LIMIT 0"
    )
    before = lines.tables()
    with pytest.raises(kind, match=message):
        lines.fetch(f"SELECT cerebro_contributions({arguments})")
    assert lines.tables() == before


def test_models_of_arrays_are_refused(trained: Any) -> None:
    with pytest.raises(errors.InvalidParameterValue, match="'pair', arrays; allowed: one target"):
        trained.fetch("SELECT cerebro_contributions('pairs', 'rows', 'id', 'x', 'parts')")
    with pytest.raises(errors.InvalidParameterValue, match=r"(?s)'irs'; allowed: 'iris', .ro's"):
        trained.fetch(
            "SELECT cerebro_contributions('flowers', 'rows', 'id', 'x', 'parts', 'irs', mst_key := 1)"
        )
