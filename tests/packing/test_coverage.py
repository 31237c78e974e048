"""A column most of whose values would have no category is refused, with what else to do."""

from __future__ import annotations

import psycopg2
import pytest


@pytest.fixture(scope="module")
def names(db):
    """4,000 rows: a name that differs in nearly all of them, and a town that is one of five in most."""
    db.fetch(
        "CREATE TABLE names AS SELECT k AS id, k % 2 AS y, 'n' || k % 3500 AS name, "
        "CASE WHEN k % 5 < 4 THEN 't' || k % 5 ELSE 'village ' || k END AS town, "
        "CASE WHEN k % 4 = 0 THEN 'n' || k % 3500 END AS rare FROM generate_series(1, 4000) k"
    )
    return db


def pack(names, column, **more):
    listed = "".join(f", {name} := {value!r}" for name, value in more.items())
    names.connection.notices.clear()
    names.fetch(
        f"SELECT cerebro_pack_columns('names', 'c', 'y', '{column}', replace := true{listed})"
    )
    return "".join(names.connection.notices)


@pytest.mark.parametrize("method", ["onehot", "integer"])
def test_a_column_of_names_is_refused(names, method):
    with pytest.raises(psycopg2.DataError) as caught:
        pack(names, "name", categories=method)
    assert caught.value.pgcode == "22000"
    assert caught.value.diag.message_primary == (
        "column 'name': got 3500 categories, of which the 100 most frequent ones cover 5 % of the values; "
        "allowed: at least 50 %"
    )
    hint = caught.value.diag.message_hint
    assert "exclude the column" in hint
    assert "max_categories := 1500 covers enough" in hint
    assert "min_coverage := 0.05 takes them as they are" in hint
    assert "c" not in names.tables()


def test_what_the_hint_says_works(names):
    assert "50 % of the rows, have a code" in pack(names, "name", max_categories=1500)
    assert "5 % of the rows, have a code" in pack(names, "name", min_coverage=0.05)
    with pytest.raises(
        psycopg2.DataError, match="cover 50 % of the values; allowed: at least 60 %"
    ):
        pack(names, "name", max_categories=1500, min_coverage=0.6)


def test_missing_values_do_not_count(names):
    with pytest.raises(psycopg2.DataError, match="got 875 categories"):
        pack(names, "rare")


def test_a_few_rare_values_are_no_reason(names):
    assert "more than 100 categories" in pack(names, "town")


@pytest.mark.parametrize("value", ["NULL", "-0.1", "1.5", "'NaN'"])
def test_a_share_is_between_0_and_1(names, value):
    with pytest.raises(psycopg2.DataError, match=r"min_coverage: got .*; allowed: 0 to 1"):
        names.fetch(
            f"SELECT cerebro_pack_columns('names', 'd', 'y', 'town', min_coverage := {value})"
        )
