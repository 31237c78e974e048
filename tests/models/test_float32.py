"""Predictions from raw rows: what float32 does not hold is refused or reported, as in packing."""

from __future__ import annotations

import psycopg2
import pytest


@pytest.fixture(scope="module")
def large(trained):
    trained.fetch(
        "CREATE TABLE large AS SELECT k AS id, ARRAY[16777216 + k % 2, 1, 1, 1] AS whole, "
        "ARRAY[0.1, 16777216 + k % 2, 1e-45, 1]::float8[] AS double, ARRAY[0.1, 2, 3, 4]::real[] AS x "
        "FROM generate_series(1, 6) k"
    )
    return trained


def predict(large, column):
    large.connection.notices.clear()
    large.fetch(
        f"SELECT cerebro_predict('sums', 'large', 'id', '{column}', 'p', 'response', replace := true)"
    )
    return [line for line in large.notices().splitlines() if "float32" in line]


def test_whole_numbers_are_refused(large):
    with pytest.raises(psycopg2.DataError, match="column 'whole': got the whole number 16777217"):
        predict(large, "whole")


def test_other_numbers_are_reported_once(large):
    (line,) = predict(large, "double")
    assert "column 'double': 9 values changed when stored as float32" in line
    assert predict(large, "x") == []


def test_single_rows_report_once_of_each_model(large):
    large.connection.notices.clear()
    large.fetch("SELECT p.* FROM large, cerebro_predict_row('sums', double) p")
    (line,) = [line for line in large.notices().splitlines() if "float32" in line]
    assert "column 'features': 2 values changed" in line
