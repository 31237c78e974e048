"""cerebro_hyperband_schedule: the paper's brackets as rows, and as a table as MADlib makes it."""

from __future__ import annotations

import pytest
from psycopg2 import Error, errors


def test_rows(db):
    rows = db.fetch("SELECT s, n_i, r_i FROM cerebro_hyperband_schedule(81, 3) WHERE i = 0")
    assert rows == [(4, 81, 1), (3, 34, 3), (2, 15, 9), (1, 8, 27), (0, 5, 81)]
    rows = db.fetch("SELECT * FROM cerebro_hyperband_schedule(r := 9, eta := 3, skip_last := 1)")
    assert rows == [(2, 0, 9, 1), (2, 1, 3, 3), (1, 0, 5, 3)]


def test_the_call_of_madlib(db):
    db.fetch("SELECT cerebro_hyperband_schedule('hb_schedule', 81, 3, 0)")
    there = db.fetch("SELECT * FROM hb_schedule ORDER BY s DESC, i")
    assert there == db.fetch("SELECT * FROM cerebro_hyperband_schedule(81, 3, 0)")
    assert len(there) == 15
    with pytest.raises(errors.DuplicateTable, match=r"public\.hb_schedule exists already"):
        db.fetch("SELECT cerebro_hyperband_schedule('hb_schedule', 9)")
    db.fetch("SELECT cerebro_hyperband_schedule('hb_schedule', 9, replace := true)")
    assert db.value("SELECT count(*) FROM hb_schedule") == 6


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ("0", "r: got 0; allowed: 1 to 1000000"),
        ("NULL", "r: got NULL; allowed: 1 to"),
        ("9, 1", "eta: got 1; allowed: 2 to"),
        ("9, 3, -1", "skip_last: got -1; allowed: 0 to"),
        ("9, 3, 3", "skip_last: got 3; allowed: 0 to 2, as the largest"),
        (
            "1000000, 2",
            "r: got 1000000 with eta := 2, whose brackets have 524288 configurations or more; allowed: 100000",
        ),
        ("'t', 0", "r: got 0; allowed: 1 to 1000000"),
        ("NULL::text, 9", "schedule_table: got NULL"),
        ("''::text, 9", "schedule_table: got ''"),
    ],
)
def test_wrong_numbers(db, arguments, told):
    with pytest.raises(Error, match=told) as caught:
        db.fetch(f"SELECT cerebro_hyperband_schedule({arguments})")
    assert caught.value.pgcode == "22023"
    assert caught.value.diag.message_hint
