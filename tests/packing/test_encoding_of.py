"""encoding_of: rows of another day, packed with an earlier encoding, and how far they have moved."""

from __future__ import annotations

import math
import os

import numpy as np
import psycopg2
import pytest
from psycopg2 import errors
from servers import partitions

from cerebro_db.packing.drift import LEAST_SHARE, stability_index

COLUMNS = "cerebro_pack_columns"


@pytest.fixture(scope="module")
def days(db):
    """Two days of 200 trips; on the second one nobody is in Rome, someone is in Bonn, and all are older."""
    for day, cities, shift in (("monday", "Oslo,Bern,Rome", 0), ("tuesday", "Oslo,Bern,Bonn", 60)):
        db.fetch(
            f"CREATE TABLE {day} AS SELECT i AS id, i % 100 + {shift} AS age, 7 AS fixed, "
            f"CASE WHEN i % 4 > 0 THEN i / 8.0 END AS distance, (string_to_array('{cities}', ','))[1 + i % 3] "
            "AS city, CASE WHEN i % 2 = 0 THEN 'bus' ELSE 'train' END AS choice FROM generate_series(0, 199) i"
        )
    db.fetch(
        f"SELECT {COLUMNS}('monday', 'packed', 'choice', '*', excluded := 'id', num_classes := 3, "
        f'encodings := \'{{"distance": "minmax"}}\', num_partitions := {partitions(2)})'
    )
    for name, rows in (("first", "ARRAY['a','b','c']"), ("second", "ARRAY['c','a','a']")):
        db.fetch(
            f"CREATE TABLE {name} AS SELECT i, ARRAY[i, 2 * i]::real[] AS x, ({rows})[1 + i % 3] AS y "
            "FROM generate_series(1, 30) i"
        )
    db.pack("first", "first_p", "y", "x", normalizing_const=4.0)
    return db


def told(db, statement):
    db.connection.notices.clear()
    db.fetch(statement)
    return "".join(db.connection.notices)


def again(db, output, source="tuesday", **more):
    given = {"excluded": "id", "encoding_of": "packed", "replace": True} | more
    named = "".join(f", {name} := %({name})s" for name in given)
    db.connection.notices.clear()
    db.fetch(f"SELECT {COLUMNS}('{source}', '{output}', 'choice', '*'{named})", given)
    return "".join(db.connection.notices)


def features(db, output):
    found = db.unpack(output, "features", "choice").features
    return found[np.lexsort(found.T)]


def test_an_earlier_encoding_makes_the_same_features_of_other_rows(days):
    notice = again(days, "later")
    assert "column 'city': 66 of 200 rows have a category" in notice
    assert "encoding of public.packed" in notice
    names = days.fetch("SELECT feature FROM packed_encoding ORDER BY position")
    assert days.fetch("SELECT feature FROM later_encoding ORDER BY position") == names
    ages = np.array([row[0] for row in days.fetch("SELECT age FROM tuesday")], float)
    found = features(days, "later")
    place = names.index(("age",))
    np.testing.assert_allclose(
        np.sort(found[:, place]), np.sort((ages - 49.5) / math.sqrt(833.25)), rtol=1e-6
    )
    cities = [place for place, (name,) in enumerate(names) if name.startswith("city = ")]
    assert len(cities) == 3
    assert (found[:, cities].sum(1) == 0).sum() == 66
    summary = days.fetch(
        "SELECT encoding_of, num_classes, classes_found, choice_class_values, training_table FROM later_summary"
    )
    assert summary == [("public.packed", [3], [2], ["bus", "train", None], None)]
    # Without it the rows are surveyed anew.
    days.fetch(f"SELECT {COLUMNS}('tuesday', 'anew', 'choice', '*', excluded := 'id')")
    assert days.value("SELECT encoding_of FROM anew_summary") is None
    assert ("city = Bonn",) in days.fetch("SELECT feature FROM anew_encoding")


def test_the_same_rows_by_the_same_encoding_are_the_same_bytes(days):
    notice = again(days, "same", "monday", num_partitions=partitions(2))
    assert "have a category" not in notice
    assert "have moved" not in notice
    one, other = (days.unpack(name, "features", "choice").raw for name in ("packed", "same"))
    assert one == other
    # They are of one encoding: each can be the validation table of the other.
    days.fetch(
        "SELECT cerebro_pack_validation('tuesday', 'of_same', 'choice', NULL, 'same', replace := true)"
    )
    shapes = days.fetch("SELECT input_shapes::text, num_classes FROM of_same_summary")
    assert shapes == days.fetch("SELECT input_shapes::text, num_classes FROM packed_summary")


def test_drift_of_each_column(days):
    again(days, "later")
    drift = {
        row[0]: row[1:]
        for row in days.fetch(
            "SELECT column_name, encoding, missing, trained_missing, unseen_rows, unseen, trained_unseen, psi "
            "FROM cerebro.drift WHERE drift_id = (SELECT max(drift_id) FROM cerebro.drift)"
        )
    }
    assert drift["city"] == ("onehot", 0, 0, 66, 0.33, 0, None)
    assert drift["distance"] == ("minmax", 0.25, 0.25, 0, 0, 0, 0)
    assert drift["fixed"] == ("standardize", 0, 0, 0, 0, 0, 0)
    # Deciles of 0 .. 99: on the second day none of 0 .. 59, and 60 of 100 are above the last edge.
    edges = [9, 19, 29, 39, 49, 59, 69, 79, 89]
    ages = np.arange(100) + 60
    shares = np.bincount(np.searchsorted(edges, ages), minlength=10) / 100
    p, q = np.full(10, 0.1), np.maximum(shares, LEAST_SHARE)
    assert drift["age"][:-1] == ("standardize", 0, 0, 0, 0, 0)
    assert drift["age"][-1] == pytest.approx(((q - p) * np.log(q / p)).sum(), rel=1e-12)
    assert stability_index([0.5, 0.5], [0.25, 0.75]) == pytest.approx(0.25 * math.log(3))
    facts = days.fetch(
        "SELECT DISTINCT kind, job_id, encoding_of, source_table, output_table, num_rows FROM cerebro.drift "
        "WHERE drift_id = (SELECT max(drift_id) FROM cerebro.drift)"
    )
    assert facts == [("packing", None, "public.packed", "public.tuesday", "public.later", 200)]


def test_a_validation_table_has_drift(days):
    notice = told(
        days,
        "SELECT cerebro_pack_validation('tuesday', 'val', 'choice', NULL, 'packed', replace := true)",
    )
    assert "column 'city': 66 of 200" in notice
    assert "a large shift): age " in notice
    kinds = days.fetch(
        "SELECT DISTINCT kind, encoding_of FROM cerebro.drift WHERE output_table = 'public.val'"
    )
    assert kinds == [("validation", "public.packed")]


def test_of_few_rows_no_shift_is_reported(days):
    days.fetch("CREATE VIEW few AS SELECT * FROM tuesday WHERE id < 199")
    assert "large shift" not in again(days, "few_p", "few")
    shift = (
        "SELECT psi FROM cerebro.drift WHERE output_table = 'public.few_p' AND column_name = 'age'"
    )
    assert days.value(shift) > 0.25


def test_a_constant_that_changes_is_a_shift(days):
    days.fetch("CREATE TABLE changed AS SELECT *, 1 FROM tuesday; UPDATE changed SET fixed = 6")
    assert "fixed" in again(days, "later", "changed")


def test_rows_after_a_packing_by_an_earlier_encoding_are_compared_with_its_rows(days):
    again(days, "later")
    assert "have a category" in again(days, "third", encoding_of="later")
    shift = (
        "SELECT psi, unseen - trained_unseen FROM cerebro.drift WHERE output_table = 'public.third' "
        "AND column_name IN ('age', 'city') ORDER BY column_name"
    )
    assert days.fetch(shift) == [(0, 0), (None, 0)]


def test_the_sample_of_many_rows_is_close_to_all_of_them(days):
    days.fetch(
        "CREATE TABLE many AS SELECT i % 1000 AS n, i % 2 AS y FROM generate_series(1, 45000) i"
    )
    days.fetch(f"SELECT {COLUMNS}('many', 'many_p', 'y', 'n')")
    encoding = days.value("SELECT encoding FROM many_p_summary")
    statistics = encoding["columns"][0]["statistics"]
    assert statistics["rows"] == 45000
    np.testing.assert_allclose(statistics["edges"], np.arange(99, 900, 100), atol=25)
    np.testing.assert_allclose(statistics["shares"], 0.1, atol=0.01)
    days.fetch(f"SELECT {COLUMNS}('many', 'many_q', 'y', 'n', encoding_of := 'many_p')")
    found = days.value("SELECT psi FROM cerebro.drift WHERE output_table = 'public.many_q'")
    assert 0 <= found < 0.005


def test_an_encoding_without_statistics_is_reported(days):
    days.fetch(
        "CREATE TABLE old AS TABLE packed; CREATE TABLE old_summary AS TABLE packed_summary; "
        "UPDATE old_summary SET encoding = regexp_replace(encoding::text, "
        "'\"statistics\": \\{[^}]*\\}', '\"statistics\": null', 'g')::json"
    )
    notice = again(days, "later", encoding_of="old")
    assert "recorded without statistics of its rows" in notice
    assert "66 of 200 rows" in notice
    unknown = days.fetch(
        "SELECT DISTINCT trained_missing, trained_unseen, psi FROM cerebro.drift "
        "WHERE drift_id = (SELECT max(drift_id) FROM cerebro.drift)"
    )
    assert unknown == [(None, None, None)]
    assert features(days, "later").shape == (200, 7)


def test_classes_shapes_and_divisor_of_arrays_come_from_an_earlier_packing(days):
    days.pack("second", "second_p", "y", "x", encoding_of="first_p")
    facts = "SELECT y_class_values, num_classes, classes_found, normalizing_const FROM {}_summary"
    assert days.fetch(facts.format("second_p")) == days.fetch(facts.format("first_p"))
    unpacked = days.unpack("second_p")
    assert sorted(set(unpacked.targets.tolist())) == [0, 2]
    assert unpacked.features.max() == 15
    days.fetch("UPDATE second SET y = 'd' WHERE i = 7")
    with pytest.raises(errors.DataException, match=r"holds the class 'd'; allowed: \{a,b,c\}"):
        days.pack("second", "third_p", "y", "x", encoding_of="first_p")
    assert "third_p" not in days.tables()


BAD = {
    "encoding_of := 'nope'": (errors.UndefinedTable, "encoding_of: got 'nope'"),
    "encoding_of := 'monday'": (errors.WrongObjectType, "neither packed nor a table of models"),
    "encoding_of := 'model:nobody@champion'": (errors.UndefinedObject, "no model of that name"),
    "encoding_of := 'packed', numbers := 'minmax'": (
        errors.InvalidParameterValue,
        "got 'minmax' for the column 'age'; allowed with encoding_of: 'standardize'",
    ),
    'encoding_of := \'packed\', encodings := \'{"city": "integer", "distance": "minmax"}\'': (
        errors.InvalidParameterValue,
        "got 'integer' for the column 'city'",
    ),
    "encoding_of := 'packed', max_categories := 2": (
        errors.InvalidParameterValue,
        "max_categories: got 2; allowed with encoding_of: at least 3",
    ),
    "encoding_of := 'packed', num_classes := 5": (
        errors.InvalidParameterValue,
        "num_classes: got 5; allowed with encoding_of: NULL",
    ),
    "encoding_of := 'first_p'": (errors.InvalidParameterValue, "has no encoding of columns"),
}


@pytest.mark.parametrize("arguments", BAD)
def test_what_cannot_be_followed_is_refused(days, arguments):
    kind, message = BAD[arguments]
    with pytest.raises(kind, match=message):
        days.fetch(f"SELECT {COLUMNS}('tuesday', 'bad', 'choice', '*', {arguments})")
    assert not [name for name in days.tables() if name.startswith("bad")]


def test_a_column_that_is_gone_is_named(days):
    days.fetch("CREATE TABLE less AS SELECT id, age, fixed, distance, choice FROM tuesday")
    with pytest.raises(errors.UndefinedColumn, match=r"got '.city.'; the columns of public\.less"):
        again(days, "bad", "less")
    days.fetch(
        "CREATE TABLE other AS SELECT *, 1 FROM tuesday; ALTER TABLE other ALTER age TYPE text"
    )
    with pytest.raises(
        errors.DataException, match="'age' is of type text; the recorded encoding is"
    ):
        again(days, "bad", "other")


def test_whoever_may_read_the_summary_may_use_the_encoding(days, administrator):
    name = f"encoder_{os.getpid()}"
    administrator.run(f"CREATE ROLE {name} LOGIN IN ROLE cerebro_user")
    days.fetch(f"CREATE SCHEMA mine AUTHORIZATION {name}; GRANT SELECT ON tuesday TO {name}")
    connection = psycopg2.connect(days.dsn, user=name)
    connection.autocommit = True
    call = f"SELECT {COLUMNS}('tuesday', 'mine.p', 'choice', '*', encoding_of := 'packed', excluded := 'id')"
    try:
        with connection.cursor() as cursor:
            with pytest.raises(errors.InsufficientPrivilege):
                cursor.execute(call)
            days.fetch(f"GRANT SELECT ON packed_summary TO {name}")
            cursor.execute(call)
            # Of drift everyone sees their own.
            cursor.execute("SELECT DISTINCT owner, output_table FROM cerebro.drift")
            assert cursor.fetchall() == [(name, "mine.p")]
            with pytest.raises(errors.InsufficientPrivilege):
                cursor.execute("SELECT * FROM cerebro.catalog_drift")
    finally:
        connection.close()
        days.fetch(f"DROP OWNED BY {name} CASCADE")
        administrator.run(f"DROP ROLE {name}")


@pytest.mark.parametrize("function", [COLUMNS, "cerebro_pack_validation"])
@pytest.mark.parametrize(
    ("kind", "is_refused"),
    [
        ("integer", True), ("bigint", True), ("numeric", True), ("numeric(12,0)", True),
        ("numeric(12,1)", False), ("float8", False),
    ],
)  # fmt: skip
def test_whole_numbers_that_an_earlier_encoding_leaves_as_they_are(
    days, kind, is_refused, function
):
    days.fetch(
        "DROP TABLE IF EXISTS whole, whole_later; "
        "CREATE TABLE whole AS SELECT i AS a, i AS b, i AS c, i % 2 AS y FROM generate_series(1, 20) i"
    )
    encodings = '{"a": "none", "b": "none", "c": "standardize"}'
    days.fetch(
        f"SELECT {COLUMNS}('whole', 'whole_p', 'y', 'a, b, c', encodings := %s, num_partitions := %s, replace := true)",
        (encodings, partitions(2)),
    )
    days.fetch(
        f"CREATE TABLE whole_later AS SELECT a, (b + 16777213)::{kind} AS b, c + 16777213 AS c, y FROM whole"
    )
    statement = f"SELECT {COLUMNS}('whole_later', 'whole_v', 'y', 'a, b, c', encoding_of := 'whole_p', replace := true)"
    if function != COLUMNS:
        statement = (
            f"SELECT {function}('whole_later', 'whole_v', 'y', NULL, 'whole_p', replace := true)"
        )
    if is_refused:
        with pytest.raises(
            errors.DataException, match="column 'b': got the whole number 16777217,"
        ):
            days.fetch(statement)
        days.fetch("DELETE FROM whole_later WHERE b > 16777216")
    days.fetch(statement)
    if kind == "numeric":  # what is no number is missing, not a whole one
        days.fetch("INSERT INTO whole_later VALUES (1, 'NaN', 1, 1), (1, 16777218, 1, 1)")
        days.fetch(statement)


def test_rows_of_drift_are_bounded(days):
    insert = (
        "SELECT cerebro._add_drift('packing', NULL, 'a', 'b', 'c', 1, ARRAY[%s], ARRAY['none'], {}, '{{0}}', '{{0}}', "
        "'{{0}}', '{{0}}')"
    )
    with pytest.raises(errors.ProgramLimitExceeded, match="more than 1000000 characters"):
        days.fetch(insert.format("'{0}'"), ("x" * 1_000_001,))
    with pytest.raises(errors.CheckViolation):
        days.fetch(insert.format("'{0, 0}'"), ("x",))
