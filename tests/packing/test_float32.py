"""What float32 does not hold is refused in columns of whole numbers, and reported in all others."""

from __future__ import annotations

import numpy as np
import psycopg2
import pytest

from cerebro_db.errors import InvalidArgument, InvalidData
from cerebro_db.training import buffers

WHOLE = 2**24


def converted(rows, oid, divisor=1.0, **more):
    losses = buffers.Losses("x", **more)
    parsed = np.atleast_2d(np.array(rows, buffers.WIRE_DTYPES[oid]))
    return buffers.to_float32(parsed, divisor, losses), losses.found


@pytest.mark.parametrize(
    ("oid", "rows"),
    [
        (20, [WHOLE, -WHOLE, WHOLE + 2, 3 * 2**60, -(2**63), 0, 2**62]),
        (23, [WHOLE, -WHOLE, WHOLE + 2, -(2**31), 3, -1, 0]),
        (701, [0.1, -0.0, 0.0, 1 / 3, 1e-37, 3.4e38, WHOLE, 1e300 / 3e262]),
        (700, [0.1, 1e-45, 1e-40, 16777218.0]),
    ],
)
def test_what_float32_holds_is_not_reported(oid, rows):
    _, found = converted(rows, oid)
    assert found is None


@pytest.mark.parametrize("oid", [20, 23])
@pytest.mark.parametrize("value", [WHOLE + 1, -WHOLE - 1, 2**30 + 1])
def test_whole_numbers_that_would_become_others_are_refused(oid, value):
    with pytest.raises(InvalidData, match=rf"column 'x': got the whole number {value}, .*float32"):
        converted([1, 0, value], oid)


def test_large_whole_numbers_are_refused_by_their_last_digit():
    converted([2**62 + 2**39], 20)
    for value in (2**63 - 1, 2**62 + 2**38, -(2**63) + 1):
        with pytest.raises(InvalidData):
            converted([value], 20)


def test_whole_numbers_stay_apart_when_they_are_divided():
    found, _ = converted([2**22, 2**22 - 1, 255], 23, 255.0)
    assert np.array_equal(found, (np.array([[2**22, 2**22 - 1, 255]]) / 255).astype(np.float32))
    for value, divisor in ((WHOLE, 255.0), (3, 1e300)):
        with pytest.raises(InvalidData, match="divided by the normalizing constant"):
            converted([value, 1], 23, divisor)


def test_a_type_of_whole_numbers_may_be_read_as_another():
    converted([WHOLE, 0], 701, is_whole=True)
    for value in (WHOLE + 1, 2.0**60):
        with pytest.raises(InvalidData):
            converted([value], 701, is_whole=True)


def test_other_numbers_are_counted_with_their_largest_error():
    small = 1e-45
    error = abs(float(np.float32(small)) - small) / small
    _, found = converted([[1.0, WHOLE + 1, 0.1], [small, 1e-60, 0.3]], 701)
    assert (found.count, found.worst, found.value, found.place) == (3, 1.0, 1e-60, 1)
    _, found = converted([[0.5, 0.0], [0.25, small]], 701)
    assert (found.count, found.worst, found.value, found.place) == (1, error, small, 1)
    _, found = converted([[WHOLE + 1.0]], 701)
    assert (found.count, found.worst) == (1, pytest.approx(1 / (WHOLE + 1)))
    _, found = converted([[WHOLE + 1.0, WHOLE, 0.5]], 701, 2.0)
    assert (found.count, found.value) == (1, (WHOLE + 1) / 2)
    _, found = converted([[1.0, 0.0]], 701, 1e300)
    assert (found.count, found.worst) == (1, 1.0)


@pytest.fixture(scope="module")
def large(db):
    db.fetch(
        f"CREATE TABLE large AS SELECT k AS id, k % 2 AS y, {WHOLE} + k % 2 AS one, "
        f"ARRAY[{WHOLE} + k % 2, 1] AS whole, ARRAY[{WHOLE} + k % 2]::numeric(12,0)[] AS exact, "
        f"ARRAY[1, {WHOLE} + k % 2]::float8[] AS double, ARRAY[0.1 * k]::float8[] AS fraction, "
        "ARRAY[k * 1e-45]::numeric[] AS small, (k % 2) * 1e-45::float8 AS target, "
        f"{WHOLE}.0 + k % 2 + CASE k WHEN 40 THEN 0.5 ELSE 0 END AS loose, {WHOLE}::numeric + k % 2 AS bare, "
        f"ARRAY[{WHOLE}::numeric + k % 2] AS bares FROM generate_series(1, 40) k"
    )
    return db


@pytest.mark.parametrize("of", ["whole", "exact", "bares"])
def test_packing_refuses_arrays_of_whole_numbers(large, of):
    with pytest.raises(psycopg2.DataError, match=rf"column '{of}': got the whole number 16777217"):
        large.pack("large", "refused", "y", of)
    assert not [name for name in large.tables() if name.startswith("refused")]


def test_packing_refuses_them_as_one_of_several_inputs_as_target_and_as_weight(large):
    for arguments, more, name in (
        (("y", "fraction, one"), {}, "one"),
        (("whole", "fraction"), {}, "whole"),
        (("y", "fraction"), {"sample_weight": "one"}, "one"),
        (("y", "fraction, bare"), {}, "bare"),
        (("bare", "fraction"), {"num_classes": None}, "bare"),
        (("y", "fraction"), {"sample_weight": "bare"}, "bare"),
    ):
        with pytest.raises(psycopg2.DataError, match=rf"column '{name}': got the whole number"):
            large.pack("large", "refused", *arguments, **more)


def test_packing_reports_other_numbers(large):
    def lines(*arguments, **more):
        told = large.pack("large", "reported", *arguments, replace=True, **more)
        return [line for line in told.splitlines() if "float32" in line]

    assert lines("y", "fraction") == []
    (line,) = lines("y", "double")
    assert line.startswith("NOTICE:  column 'double': 20 values changed when stored as float32")
    assert "up to 6e-08 (that of 16777217.0)" in line
    (line,) = lines("y", "small", num_partitions=1)
    assert "column 'small': 40 values" in line
    (line,) = lines("target", "fraction")
    assert "column 'target': 20 values" in line
    assert "0.4 (that of 1e-45)" in line
    (line,) = lines("y", "fraction", sample_weight="loose")
    assert "column 'loose': 20 values" in line
    assert len(lines("y", "double, fraction, loose")) == 2


def test_validation_tables_too(large):
    large.fetch(
        "CREATE VIEW fitting AS SELECT y, ARRAY[1] AS whole, ARRAY[1e-3] AS small FROM large"
    )
    large.pack("fitting", "fit_whole", "y", "whole")
    large.fetch("CREATE VIEW later AS SELECT y, ARRAY[one] AS one FROM large")
    with pytest.raises(psycopg2.DataError, match="column 'one': got the whole number 16777217"):
        large.fetch("SELECT cerebro_pack_validation('later', 'val', 'y', 'one', 'fit_whole')")
    large.pack("fitting", "fit_small", "y", "small")
    large.connection.notices.clear()
    large.fetch("SELECT cerebro_pack_validation('large', 'val', 'y', 'small', 'fit_small')")
    assert "column 'small': 40 values changed" in "".join(large.connection.notices)


class _Model:
    def __init__(self, *weights):
        self._weights = weights

    def get_weights(self):
        return self._weights


def test_weights_of_the_client_are_float32_or_refused():
    from cerebro_db.client.database import _weights

    good = _Model(
        np.array([0.1, 1.0]), np.array([[WHOLE, 3]]), np.array([np.nan, np.inf], np.float32)
    )
    assert np.frombuffer(_weights(good), np.float32)[:4].tolist() == [np.float32(0.1), 1, WHOLE, 3]
    for bad in (np.array([WHOLE + 1]), np.array([1.0, 1e39]), np.array([2**40 + 1], np.uint64)):
        with pytest.raises(InvalidArgument, match="allowed: what float32 holds"):
            _weights(_Model(bad))
