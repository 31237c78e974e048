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


WHOLE = "ARRAY[16777217, 1, 1, 1]"


@pytest.mark.parametrize(
    "features",
    [
        f"{WHOLE}::integer[]", f"{WHOLE}::bigint[]", f"{WHOLE}::numeric[]", f"{WHOLE}::numeric(9,0)[]",
        "'{16777217, 1, 1, 1}'", "'{16777217, 1, 1, 1}'::text", "ARRAY[16777217.0, 1, 1, 1]",
    ],
)  # fmt: skip
def test_whole_numbers_of_single_rows_are_refused(large, features):
    with pytest.raises(
        psycopg2.DataError, match="column 'features': got the whole number 16777217 divided"
    ):
        large.fetch(f"SELECT * FROM cerebro_predict_row('sums', {features})")


def test_a_bigint_is_not_rounded_before_it_is_looked_at(large):
    with pytest.raises(psycopg2.DataError, match="got the whole number 9007199254740993 "):
        large.fetch("SELECT cerebro_predict_row('sums', ARRAY[1, 9007199254740993, 1, 1])")


@pytest.mark.parametrize("kind", ["smallint", "integer", "bigint", "numeric", "real", "float8"])
def test_whole_numbers_that_float32_holds_are_taken(large, kind):
    sql = "SELECT estimated FROM cerebro_predict_row('sums', {})"
    known = large.value(sql.format("ARRAY[3, 1, 2, 4]::float8[]"))
    assert large.value(sql.format(f"ARRAY[3, 1, 2, 4]::{kind}[]")) == known
    assert large.value(sql.format("'{3, 1, 2, 4}'")) == known
    if kind != "smallint":
        even = f"ARRAY[16777218, 1, 2, 4]::{kind}[]"
        assert large.value(sql.format(even)) == large.value(sql.format(even.replace(kind, "real")))


@pytest.mark.parametrize(
    ("inputs", "is_refused"),
    [
        ("json_build_array(ARRAY[16777217, 1, 1, 1])", True),
        ("json_build_array(ARRAY[16777217, 1, 1, 1]::numeric[])", True),
        ("'[[73786976294838206465, 1, 1, 1]]'", True),
        ("json_build_array(ARRAY[16777217, 0.5, 1, 1])", False),
        ("'[[16777217.0, 1, 1, 1]]'", False),
    ],
)
def test_whole_numbers_in_json_are_refused(large, inputs, is_refused):
    call = f"SELECT * FROM cerebro_predict_outputs('sums', {inputs})"
    if is_refused:
        with pytest.raises(psycopg2.DataError, match="column 'features': got the whole number"):
            large.fetch(call)
    else:
        assert len(large.fetch(call)) == 1


@pytest.fixture(scope="module")
def plain_columns(large, network):
    """A model of two columns that are packed as they are."""
    large.fetch("CREATE TABLE counts AS SELECT id, id AS a, id AS b, sum FROM rows")
    large.fetch(
        "SELECT cerebro_pack_columns('counts', 'counts_p', 'sum', 'a, b', numbers := 'none', num_partitions := 2)"
    )
    large.fetch("SELECT cerebro_load_model('counts_m', %s)", (network((2,), (1, "linear")),))
    large.fetch(
        "SELECT cerebro_fit('counts_p', 'counts_out', 'counts_m', 1, %s, 'batch_size=8', 1)",
        ("loss='mse',optimizer='SGD(lr=0.0)'",),
    )
    return "counts_out"


@pytest.mark.parametrize(
    ("kind", "is_refused"), [("bigint", True), ("numeric", True), ("float8", False)]
)
def test_encoded_columns_that_stay_as_they_are(large, plain_columns, kind, is_refused):
    large.fetch(
        f"CREATE VIEW counted AS SELECT id, (id + 16777213)::{kind} AS a, id AS b, sum FROM rows"
    )
    calls = (
        f"cerebro_predict('{plain_columns}', 'counted', 'id', NULL, 'p', 'response', replace := true)",
        f"cerebro_evaluate('{plain_columns}', 'counted', 'e', dependent_varname := 'sum', replace := true)",
    )
    for call in calls:
        large.connection.notices.clear()
        if is_refused:
            with pytest.raises(
                psycopg2.DataError, match="column 'a': got the whole number 16777217,"
            ):
                large.fetch(f"SELECT {call}")
        else:
            large.fetch(f"SELECT {call}")
            assert "column 'a': " in large.notices()
    large.fetch("DROP VIEW counted")
