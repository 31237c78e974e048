"""Predictions from raw rows: what float32 does not hold is refused or reported, as in packing."""

from __future__ import annotations

import psycopg2
import pytest


@pytest.fixture(scope="module")
def large(trained):
    trained.fetch(
        "CREATE TABLE large AS SELECT k AS id, ARRAY[16777216 + k % 2, 1, 1, 1] AS whole, "
        "ARRAY[0.1, 16777216 + k % 2, 1e-45, 1]::float8[] AS double, "
        "ARRAY[16777216 + k % 2, 1, 1, 1]::numeric[] AS bare, ARRAY[16777216 + k % 2, 1, 1, 1]::numeric(9,0)[] AS exact, "
        "ARRAY[16777216 + k % 2, 0.5, 1, 1]::numeric[] AS parts, ARRAY[0.1, 2, 3, 4]::real[] AS x, 1.0::real AS y "
        "FROM generate_series(1, 6) k"
    )
    return trained


def predict(large, column, rows="large"):
    large.connection.notices.clear()
    large.fetch(
        f"SELECT cerebro_predict('sums', '{rows}', 'id', '{column}', 'p', 'response', replace := true)"
    )
    return [line for line in large.notices().splitlines() if "float32" in line]


@pytest.fixture(scope="module", params=["large", "large_seen"])
def raw(request, large):
    """A table, and a view of it, which is read in another way."""
    large.fetch("CREATE OR REPLACE VIEW large_seen AS SELECT * FROM large")
    return request.param


@pytest.mark.parametrize("column", ["whole", "bare", "exact"])
def test_whole_numbers_are_refused(large, raw, column):
    with pytest.raises(
        psycopg2.DataError, match=f"column '{column}': got the whole number 16777217"
    ):
        predict(large, column, raw)


@pytest.mark.parametrize("column", ["whole", "bare", "exact"])
def test_evaluation_refuses_them_too(large, raw, column):
    with pytest.raises(
        psycopg2.DataError, match=f"column '{column}': got the whole number 16777217"
    ):
        large.fetch(
            f"SELECT cerebro_evaluate('sums', '{raw}', 'e', dependent_varname := 'y', "
            f"independent_varname := '{column}')"
        )


def test_numeric_with_decimals_is_reported(large, raw):
    (line,) = predict(large, "parts", raw)
    assert "column 'parts': 3 values changed when stored as float32" in line


def test_a_row_without_features_is_refused_as_in_a_table(large):
    with pytest.raises(psycopg2.DataError, match="features: got NULL; allowed: no NULL"):
        large.fetch("SELECT cerebro_predict_row('sums', NULL)")


def test_other_numbers_are_reported_once(large):
    (line,) = predict(large, "double")
    assert "column 'double': 9 values changed when stored as float32" in line
    assert predict(large, "x") == []


def test_single_rows_report_once_of_each_model(large):
    large.connection.notices.clear()
    large.fetch("SELECT p.* FROM large, cerebro_predict_row('sums', double) p")
    (line,) = [line for line in large.notices().splitlines() if "float32" in line]
    assert "column 'features': 2 values changed" in line
