"""Partial dependence on columns, of a linear net its line."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from psycopg2 import errors

from tests.models.conftest import OF_KIND, fitted, layer


def dependence(db: Any, arguments: str) -> Any:
    db.fetch("DROP TABLE IF EXISTS depends")
    db.fetch(f"SELECT cerebro_dependence({arguments})")
    return db.fetch("SELECT * FROM depends ORDER BY column_name, number, value")


def test_that_of_a_linear_net_is_its_line(lines: Any) -> None:
    found = dependence(lines, "'line', 'lines', 'depends', grid := 5")
    truth = lines.fetch("SELECT a, b, kind FROM lines")
    mean = np.mean([3 * a - b + OF_KIND[kind] for a, b, kind in truth])
    kinds = np.mean([OF_KIND[kind] for *_, kind in truth])
    for name, slope, values in (
        ("a", 3, [row[0] for row in truth]),
        ("b", -1, [row[1] for row in truth]),
        ("c", 0, [row[0] for row in lines.fetch("SELECT c FROM lines")]),
    ):
        rows = [row for row in found if row[0] == name]
        wanted = sorted(values)
        quantiles = [
            wanted[max(0, int(np.ceil(share * 400)) - 1)] for share in (0, 0.25, 0.5, 0.75, 1)
        ]
        numbers = np.asarray([number for _, _, number, *_ in rows])
        np.testing.assert_allclose(numbers, quantiles)
        estimated = [row[4] for row in rows]
        np.testing.assert_allclose(estimated, mean + slope * (numbers - np.mean(values)), atol=1e-5)
        assert [float(row[1]) for row in rows] == pytest.approx(list(numbers))
    categories = [row for row in found if row[0] == "kind"]
    assert [row[1:4] for row in categories] == [(kind, None, None) for kind in OF_KIND]
    np.testing.assert_allclose(
        [row[4] for row in categories], [mean + at - kinds for at in OF_KIND.values()], atol=1e-5
    )
    assert {row[5:] for row in found} == {(400, 1)}


def test_some_rows_and_columns_of_a_registered_model(lines: Any) -> None:
    one, again, other = (
        dependence(
            lines,
            f"'model:line', 'lines', 'depends', columns := ARRAY['kind', 'a'], max_rows := 50, seed := {seed}",
        )
        for seed in (1, 1, 2)
    )
    assert one == again != other
    assert {row[0] for row in one} == {"a", "kind"}
    assert {row[5:7] for row in one} == {(50, 1)}
    assert one[0][7].endswith(".line:1")
    slopes = np.diff([row[4] for row in one[:20]]) / np.diff([row[2] for row in one[:20]])
    np.testing.assert_allclose(slopes, 3, rtol=1e-3)


@pytest.mark.parametrize("table", ["rows", "flowers_packed"])
def test_probabilities_of_all_classes_by_numbers_of_an_array(trained: Any, table: str) -> None:
    found = dependence(
        trained,
        f"'flowers', '{table}', 'depends', mst_key := 1, columns := ARRAY['x[2]'], grid := 3",
    )
    values = sorted(x for (x,) in trained.fetch("SELECT x[2] FROM rows"))
    assert sorted({row[2] for row in found}) == pytest.approx([values[0], values[60], values[119]])
    assert {row[3] for row in found} == {"iris", "ro'se", None}
    for number in {row[2] for row in found}:
        assert sum(row[4] for row in found if row[2] == number) == pytest.approx(1, abs=1e-6)
        trained.fetch("DROP TABLE IF EXISTS moved, told")
        trained.fetch(
            "CREATE TABLE moved AS SELECT id, ARRAY[x[1], %s, x[3], x[4]]::real[] AS x FROM rows",
            (number,),
        )
        trained.fetch("SELECT cerebro_predict('flowers', 'moved', 'id', 'x', 'told', mst_key := 1)")
        told = dict(trained.fetch("SELECT class_value, avg(prob) FROM told GROUP BY 1"))
        for row in found:
            if row[2] == number:
                assert row[4] == pytest.approx(told[row[3]], abs=1e-6)


BAD = {
    "'line', 'lines_packed', 'depends'": (errors.WrongObjectType, "test_table: got .*packed"),
    "'line', 'lines', 'depends', columns := ARRAY['kindd']": (
        errors.InvalidParameterValue,
        "columns: got 'kindd'; allowed: 'a', 'b', 'c', 'kind'",
    ),
    "'line', 'lines', 'depends', columns := ARRAY[]::text[]": (
        errors.InvalidParameterValue,
        "columns: got an empty array",
    ),
    "'line', 'lines', 'depends', max_rows := 100001": (
        errors.InvalidParameterValue,
        "max_rows: got 100001; allowed: 1 to 100000",
    ),
    "'line', 'lines', 'depends', grid := 1": (
        errors.InvalidParameterValue,
        "grid: got 1; allowed: 2 to 1000",
    ),
}


@pytest.mark.parametrize("arguments", BAD)
def test_bad_calls_are_refused_before_work(lines: Any, arguments: str) -> None:
    kind, message = BAD[arguments]
    lines.fetch("DROP TABLE IF EXISTS depends")
    before = lines.tables()
    with pytest.raises(kind, match=message):
        lines.fetch(f"SELECT cerebro_dependence({arguments})")
    assert lines.tables() == before


def test_rows_that_are_one_column(lines: Any, network: Any) -> None:
    """Rows of two dimensions have an importance together, and no values that could be put one after another."""
    lines.fetch(
        "CREATE TABLE plates AS SELECT id, y, ARRAY[[a, b], [c, 1]]::real[] AS plate FROM lines"
    )
    lines.fetch("SELECT cerebro_pack('plates', 'plates_packed', 'y', 'plate', num_partitions := 2)")
    net = network((2, 2), layer("Flatten"), (1, "linear"))
    fitted(lines, "plated", net, [3, -1, 0, 0, 0], "loss='mse'", "plates_packed")
    lines.fetch("SELECT cerebro_explain('plated', 'plates', 'depends')")
    assert [row[0] for row in lines.fetch("SELECT column_name FROM depends")] == ["plate"]
    lines.fetch("DROP TABLE depends")
    with pytest.raises(errors.WrongObjectType, match="'plate', rows of 4 numbers"):
        lines.fetch("SELECT cerebro_dependence('plated', 'plates', 'depends')")
