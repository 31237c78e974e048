"""Statistics of columns: those of NumPy, also where sums lose digits; what cannot be computed is named."""

from __future__ import annotations

import json

import numpy as np
import psycopg2
import pytest

ROWS = 3000


@pytest.fixture(scope="module")
def numbers(db):
    """Columns whose means are large beside their deviations, and columns that are the same everywhere."""
    db.fetch(
        "CREATE TABLE numbers AS SELECT k AS id, k % 2 AS y, "
        "timestamptz '2026-03-02 10:11:12.345+00' AS loaded_at, 14.62::float8 AS fee, 14.62 AS exact, "
        "0.0::float8 AS nothing, -7 AS whole, time '10:11:12.3' AS hour, 1e-300::float8 AS tiny, "
        "14.62::float8 + CASE WHEN k = 7 THEN 2e-15 ELSE 0 END AS nearly, "
        "1e9 + 0.001 * (k % 3) AS far, 1e15::float8 + k % 5 AS farther, 1e9 + (k % 7) * 1e-6 AS close, "
        "timestamp '2026-03-02 10:11:12.345' + k * interval '1 microsecond' AS tick, "
        "CASE WHEN k % 4 > 0 THEN 0.1 * k END AS ordinary, 1e100 * k AS large, 1e-170 * k::float8 AS small, "
        f"1e140 * k::float8 AS largest FROM generate_series(1, {ROWS}) k"
    )
    return db


SAME = ["loaded_at", "fee", "exact", "nothing", "whole", "hour", "tiny", "nearly"]


def encoding(db, columns, numbers, output="n"):
    listed = ", ".join(columns)
    db.fetch(
        f"SELECT cerebro_pack_columns('numbers', '{output}', 'y', '{listed}', numbers := '{numbers}', "
        "num_partitions := 1, replace := true)"
    )
    rows = db.fetch(
        f"SELECT column_name, center, scale, fill FROM {output}_encoding WHERE encoding = '{numbers}'"
    )
    return {name: tuple(found) for name, *found in rows}


@pytest.mark.parametrize("method", ["standardize", "minmax"])
def test_a_column_that_is_the_same_everywhere_is_divided_by_one(numbers, method):
    found = encoding(numbers, SAME, method)
    assert {name: scale for name, (_, scale, _) in found.items()} == dict.fromkeys(SAME, 1.0)
    assert found["fee"] == found["exact"] == (14.62, 1.0, 14.62)
    features = numbers.unpack("n", "features").features
    assert np.abs(features).max() < 1e-14
    assert not features[:, [SAME.index(name) for name in SAME if name != "nearly"]].any()


def test_the_next_day_is_as_far_away_as_it_is(numbers):
    encoding(numbers, ["loaded_at", "fee"], "standardize")
    numbers.fetch(
        "CREATE TABLE next_day AS SELECT id, y, loaded_at + interval '1 day' AS loaded_at, "
        "fee + 1 AS fee FROM numbers"
    )
    numbers.fetch("SELECT cerebro_encode('next_day', 'n', 'next_features', 'id', replace := true)")
    assert numbers.value("SELECT features FROM next_features LIMIT 1") == pytest.approx([1, 1])


VARYING = ["far", "farther", "close", "tick", "ordinary", "large", "small", "largest"]


def values(numbers, name):
    rows = numbers.fetch(
        f"SELECT date_part('epoch', {name}) / 86400 FROM numbers"
        if name == "tick"
        else f"SELECT {name}::float8 FROM numbers WHERE {name} IS NOT NULL"
    )
    return np.array([row[0] for row in rows])


def test_standardized_columns_are_those_of_numpy(numbers):
    for name, (center, scale, fill) in encoding(numbers, VARYING, "standardize").items():
        known = values(numbers, name)
        # As exact as it gets: what all values have in common taken off first.
        rest = known - known.min()
        assert center == fill == pytest.approx(known.min() + rest.mean(), rel=1e-15), name
        assert scale == pytest.approx((rest / rest.max()).std() * rest.max(), rel=1e-7), name
    features = numbers.unpack("n", "features").features[:, : len(VARYING)]
    close = features[:, VARYING.index("close")]
    # The center has no more digits than a number of double precision that large.
    assert close.mean() == pytest.approx(0, abs=0.05)
    assert close.std() == pytest.approx(1, abs=1e-5)


def test_minmax_is_that_of_numpy(numbers):
    for name, (center, scale, fill) in encoding(numbers, VARYING, "minmax").items():
        known = values(numbers, name)
        rest = known - known.min()
        assert (center, scale) == (known.min(), rest.max()), name
        assert fill == pytest.approx(known.min() + rest.mean(), rel=1e-15), name


def test_the_mean_is_what_missing_numbers_are_taken_for(numbers):
    ((_, _, fill),) = encoding(numbers, ["far"], "none").values()
    known = values(numbers, "far")
    assert fill == pytest.approx(known.min() + (known - known.min()).mean(), rel=1e-15)


@pytest.fixture(scope="module")
def beyond(db):
    db.fetch(
        "CREATE TABLE beyond AS SELECT k AS id, k % 2 AS y, k AS good, k / 2.0 AS fine, "
        "CASE WHEN k = 3 THEN 1e160 ELSE 1 END::float8 AS square, "
        "CASE WHEN k = 3 THEN 1.5e308 ELSE -1.5e308 END::float8 AS span, "
        "CASE WHEN k = 3 THEN 1e400 ELSE 1 END::numeric AS digits, "
        "CASE WHEN k = 3 THEN 1e39 ELSE 1 END::float8 AS single, 16777216 + k AS whole, "
        "16777216::numeric(12, 0) + k AS exact, 16777216::numeric + k AS bare FROM generate_series(1, 10) k"
    )
    return db


@pytest.mark.parametrize(
    ("name", "method", "told"),
    [
        ("square", "standardize", "out of range: overflow"),
        ("span", "minmax", "out of range: overflow"),
        ("digits", "minmax", "out of range"),
        ("single", "none", "got 1e\\+39; allowed with the encoding 'none'"),
        ("whole", "none", "got the whole number 16777217, which float32 does not hold"),
        ("bare", "none", "got the whole number 16777217, which float32 does not hold"),
    ],
)
def test_what_cannot_be_encoded_is_named(beyond, name, method, told):
    with pytest.raises(psycopg2.DataError, match=f"column '{name}': .*{told}") as caught:
        beyond.fetch(
            f"SELECT cerebro_pack_columns('beyond', 'b', 'y', 'good, {name}, fine', numbers := '{method}')"
        )
    assert caught.value.pgcode == "22000"
    assert len(str(caught.value).splitlines()[0]) < 400
    assert caught.value.diag.message_hint
    assert not [table for table in beyond.tables() if table.startswith("b_")]


def test_the_scale_of_whole_numbers_is_none_of_float32s(beyond):
    beyond.fetch("SELECT cerebro_pack_columns('beyond', 'w', 'y', 'whole')")
    assert np.unique(beyond.unpack("w", "features").features).size == 10


def test_arrays_and_targets_of_numerics_are_named_too(beyond):
    beyond.fetch(
        "CREATE VIEW arrays AS SELECT y, ARRAY[digits] AS x, ARRAY[good] AS z, digits FROM beyond"
    )
    for arguments, name in ((("y", "x"), "x"), (("digits", "z"), "digits")):
        with pytest.raises(psycopg2.DataError, match=f"column '{name}': got a value that cannot"):
            beyond.pack("arrays", "b", *arguments)
    with pytest.raises(psycopg2.DataError, match="column 'digits': got a value that cannot"):
        beyond.pack("arrays", "b", "y", "z", sample_weight="digits")


def test_other_rows_are_named_too(beyond):
    methods = json.dumps({"digits": "minmax"})
    beyond.fetch("CREATE VIEW small AS SELECT id, y, good, 1 + id::numeric AS digits FROM beyond")
    beyond.fetch(
        "SELECT cerebro_pack_columns('small', 's', 'y', 'good, digits', encodings := %s)",
        (methods,),
    )
    for call in (
        "cerebro_pack_validation('beyond', 'b', 'y', NULL, 's')",
        "cerebro_encode('beyond', 's', 'b', 'id')",
    ):
        with pytest.raises(psycopg2.DataError, match="column 'digits': got a value that cannot"):
            beyond.fetch(f"SELECT {call}")


def test_a_row_that_is_too_large_once_it_is_encoded_names_its_column(beyond):
    beyond.fetch("CREATE VIEW near AS SELECT id, y, good, id / 2.0 AS square, fine FROM beyond")
    beyond.fetch("SELECT cerebro_pack_columns('near', 'near_packed', 'y', 'good, square, fine')")
    with pytest.raises(
        psycopg2.DataError, match="a value of the column 'square' that is too large"
    ) as caught:
        beyond.fetch("SELECT cerebro_pack_validation('beyond', 'b', 'y', NULL, 'near_packed')")
    assert caught.value.pgcode == "22000"
    assert "row 3 of" in str(caught.value)
    assert "such values of square can be replaced in a view" in caught.value.diag.message_hint
