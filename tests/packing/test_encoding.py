"""cerebro_pack_columns: what columns of each type become, recorded and applied to other rows."""

from __future__ import annotations

import json

import numpy as np
import pytest
from psycopg2 import errors
from servers import partitioned

HOSTILE = ["", "'", '"', "\\", "\\'", "%s", "100%", "{}", "a, b", "$$", "é", "e", "E", " "]


@pytest.fixture(scope="module")
def people(db):
    """41 people; every seventh value of each column is missing, where one may be."""
    db.fetch(
        "CREATE TYPE mood AS ENUM ('low', 'high'); "
        "CREATE TABLE people AS SELECT i AS id, i AS age, nullif(i % 7, 0) AS visits, "
        "CASE i % 7 WHEN 0 THEN 'NaN'::real WHEN 1 THEN 'Infinity'::real ELSE i / 4.0 END::real AS weight, "
        "nullif(i % 7, 0)::numeric(9, 3) / 3 AS score, 5::bigint AS same, "
        "CASE WHEN i % 7 > 0 THEN i % 2 = 0 END AS member, "
        "(ARRAY['oslo', 'Bern', 'rome'])[nullif(i % 7, 0) % 3 + 1] AS city, "
        "(ARRAY['low', 'high'])[i % 2 + 1]::mood AS mood, "
        "date '2020-01-01' + i AS born, timestamp '2020-01-01 12:00' + i * interval '1 hour' AS seen, "
        "timestamptz '2020-01-01 12:00+00' + i * interval '1 day' AS met, time '06:00' AS hour, "
        "i % 3 AS y FROM generate_series(1, 41) i ORDER BY md5(i::text)"
    )
    return db


def pack(db, listed, output="e", source="people", **more):
    db.fetch(f"DROP TABLE IF EXISTS {output}, {output}_summary, {output}_encoding")
    named = "".join(f", {name} := %({name})s" for name in more)
    db.fetch(
        f"SELECT cerebro_pack_columns('{source}', '{output}', 'y', %(listed)s{named})",
        {"listed": listed, **more},
    )
    return db.unpack(output, "features", "y").features


def by_id(features):
    """The rows in the order of the first column, which is the plain id."""
    return features[np.argsort(features[:, 0])][:, 1:]


def encode(db, listed, output="e", source="people", methods=None, **more):
    """The features of the rows in the order of their ids."""
    given = json.dumps({"id": "none"} | (methods or {}))
    return by_id(pack(db, f"id, {listed}", output, source, encodings=given, **more))


def column(db, name, source="people"):
    return [row[0] for row in db.fetch(f"SELECT {name} FROM {source} ORDER BY id")]


def table(db, output="e"):
    return db.fetch(f"SELECT * FROM {output}_encoding ORDER BY position, code NULLS FIRST")


def test_numbers_are_standardized(people):
    ages = np.array(column(people, "age"), float)
    found = encode(people, "age, same")
    np.testing.assert_allclose(found[:, 0], (ages - ages.mean()) / ages.std(), rtol=1e-6)
    assert not found[:, 1].any()
    assert people.fetch("SELECT center, scale FROM e_encoding WHERE column_name = 'same'") == [
        (5, 1)
    ]


@pytest.mark.parametrize("name", ["visits", "weight", "score"])
def test_missing_numbers_become_the_mean_and_are_reported(people, name):
    values = np.array(
        [np.nan if v is None else float(v) for v in column(people, f"{name}::float8")]
    )
    missing = ~np.isfinite(values)
    assert missing.any()
    known = values[~missing]
    found = encode(people, name)
    wanted = np.where(missing, 0.0, (values - known.mean()) / known.std())
    np.testing.assert_allclose(found[:, 0], wanted, rtol=1e-5, atol=1e-7)
    assert np.array_equal(found[:, 1], missing)


def test_minmax_and_none(people):
    found = encode(people, "age, visits, weight", methods={"visits": "none"}, numbers="minmax")
    ages = np.array(column(people, "age"))
    np.testing.assert_allclose(found[:, 0], (ages - 1) / 40, rtol=1e-6)
    visits = column(people, "visits")
    mean = np.mean([v for v in visits if v is not None])
    np.testing.assert_allclose(found[:, 1], [mean if v is None else v for v in visits], rtol=1e-6)
    assert found[:, 3].min() == 0
    assert found[:, 3].max() == 1


def test_booleans_are_zero_and_one(people):
    members = column(people, "member")
    share = np.mean([m for m in members if m is not None])
    found = encode(people, "member")
    np.testing.assert_allclose(found[:, 0], [share if m is None else m for m in members], rtol=1e-6)
    assert np.array_equal(found[:, 1], [m is None for m in members])


@pytest.mark.parametrize(("name", "days"), [("born", 1.0), ("seen", 1 / 24), ("met", 1.0)])
def test_dates_and_times_are_days(people, name, days):
    found = encode(people, name, methods={name: "none"})[:, 0]
    np.testing.assert_allclose(np.diff(found), days, atol=2e-3)
    assert 18262 <= found[0] < 18264
    found = encode(people, name)[:, 0]
    np.testing.assert_allclose(found.std(), 1, rtol=1e-5)


def test_a_time_of_day_is_a_part_of_a_day(people):
    assert encode(people, "hour", methods={"hour": "none"})[0, 0] == 0.25


def test_categories_are_one_hot(people):
    found = encode(people, "city, mood")
    cities, moods = column(people, "city"), column(people, "mood")
    names = ["Bern", "oslo", "rome", None]
    assert np.array_equal(found[:, :4], [[city == name for name in names] for city in cities])
    assert np.array_equal(found[:, 4:], [[m == "high", m == "low"] for m in moods])
    assert table(people)[1:] == [
        (2, "city = Bern", "city", "text", "onehot", "Bern", None, None, None, None, "features"),
        (3, "city = oslo", "city", "text", "onehot", "oslo", None, None, None, None, "features"),
        (4, "city = rome", "city", "text", "onehot", "rome", None, None, None, None, "features"),
        (5, "city is missing", "city", "text", "missing", None, None, None, None, None, "features"),
        (
            6,
            "mood = high",
            "mood",
            "public.mood",
            "onehot",
            "high",
            None,
            None,
            None,
            None,
            "features",
        ),
        (
            7,
            "mood = low",
            "mood",
            "public.mood",
            "onehot",
            "low",
            None,
            None,
            None,
            None,
            "features",
        ),
    ]


def test_categories_are_integers(people):
    found = encode(people, "city, age", categories="integer", methods={"age": "integer"})
    codes = {"Bern": 1, "oslo": 2, "rome": 3, None: 4}
    assert list(found[:, 0]) == [codes[city] for city in column(people, "city")]
    texts = sorted(map(str, range(1, 42)))
    assert list(found[:, 1]) == [texts.index(str(age)) + 1 for age in column(people, "age")]
    rows = people.fetch(
        "SELECT position, feature, category, code FROM e_encoding WHERE column_name = 'city' "
        "ORDER BY code"
    )
    assert rows == [
        (2, "city is none of these", None, 0),
        (2, "city = Bern", "Bern", 1),
        (2, "city = oslo", "oslo", 2),
        (2, "city = rome", "rome", 3),
        (2, "city is missing", None, 4),
    ]


@pytest.mark.parametrize("method", ["onehot", "integer"])
def test_values_and_names_that_are_hard_to_quote(people, method):
    people.fetch('DROP TABLE IF EXISTS odd; CREATE TABLE odd (id int, y int, "a, ""%s\'\\" text)')
    for number, value in enumerate(HOSTILE * 2):
        people.fetch("INSERT INTO odd VALUES (%s, 1, %s)", (number, value))
    people.fetch("INSERT INTO odd VALUES (98, 1, NULL), (99, 0, 'x')")
    listed = '"a, ""%s\'\\"'
    found = encode(people, listed, source="odd", methods={"a, \"%s'\\": method})
    names = sorted({*HOSTILE, "x"}, key=str.encode)
    codes = [names.index(value) + 1 for value in HOSTILE * 2] + [
        len(names) + 1,
        names.index("x") + 1,
    ]
    if method == "integer":
        assert list(found[:, 0]) == codes
    else:
        assert np.array_equal(found, np.eye(len(names) + 1)[np.array(codes) - 1])
    people.fetch("SELECT cerebro_pack_validation('odd', 'odd_v', 'y', NULL, 'e')")
    same = by_id(people.unpack("odd_v", "features", "y").features)
    assert np.array_equal(same, found)
    people.fetch("DROP TABLE odd_v, odd_v_summary")


def test_the_most_frequent_categories_have_a_code(people):
    people.fetch(
        "CREATE TABLE words AS SELECT i AS id, 1 AS y, CASE WHEN i % 2 = 0 THEN 'b' "
        "WHEN i % 3 = 0 THEN 'a' ELSE 'w' || i END AS word FROM generate_series(1, 60) i"
    )
    people.connection.notices.clear()
    found = encode(people, "word", source="words", max_categories=2)
    words = column(people, "word", "words")
    assert np.array_equal(found, [[word == "a", word == "b"] for word in words])
    assert "column 'word' has more than 2 categories" in "".join(people.connection.notices)
    assert "66 % of the rows" in "".join(people.connection.notices)


def test_all_columns_but_some(people):
    pack(people, "*", excluded="id, mood")
    listed = people.fetch("SELECT DISTINCT column_name FROM e_encoding")
    assert {row[0] for row in listed} == {
        "age", "visits", "weight", "score", "same", "member", "city", "born", "seen", "met", "hour",
    }  # fmt: skip
    width, (shape,) = people.fetch(
        "SELECT (SELECT max(position) FROM e_encoding), input_shapes FROM e_summary"
    )[0]
    assert shape == [width]


def test_sources_of_other_kinds_give_the_same(people, has_segments):
    people.fetch(
        "CREATE VIEW people_view AS SELECT * FROM people; "
        f"{partitioned('people_parts', 'LIKE people', has_segments)}; "
        "INSERT INTO people_parts SELECT * FROM people"
    )
    wanted = encode(people, "age, city, weight")
    for source in ("people_view", "people_parts"):
        found = encode(people, "age, city, weight", source=source)
        np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-7)
        assert "e_staging" not in people.tables()


@pytest.fixture(scope="module")
def trained(people):
    pack(people, "age, visits, weight, member, city, born", "train", num_partitions=2)
    people.fetch(
        "CREATE TABLE later AS SELECT * FROM people WHERE id IN (3, 8, 14); "
        "UPDATE later SET age = NULL, city = 'new' WHERE id = 3; "
        "UPDATE later SET visits = 1000, member = NULL, born = 'infinity' WHERE id = 8"
    )
    return people


def test_other_rows_are_encoded_as_the_training_rows(trained):
    trained.fetch("DROP TABLE IF EXISTS v, v_summary")
    trained.fetch("SELECT cerebro_pack_validation('people', 'v', 'y', NULL, 'train')")
    a = trained.unpack("train", "features", "y").features
    b = trained.unpack("v", "features", "y").features
    assert np.array_equal(np.unique(a, axis=0), np.unique(b, axis=0))
    assert "v_encoding" not in trained.tables()


def test_what_the_training_rows_did_not_have(trained, has_segments):
    trained.fetch("DROP TABLE IF EXISTS v, v_summary")
    trained.fetch("SELECT cerebro_pack_validation('later', 'v', 'y', '*', 'train')")
    names = [
        row[0] for row in trained.fetch("SELECT feature FROM train_encoding ORDER BY position")
    ]
    place = "gp_segment_id, ctid" if has_segments else "ctid"
    order = [row[0] for row in trained.fetch(f"SELECT id FROM later ORDER BY {place}")]
    rows = dict(zip(order, trained.unpack("v", "features", "y").features, strict=True))
    row = dict(zip(names, rows[3], strict=True))
    # No age was missing: the mean, and nothing tells of it. A city that is none of them: zeros.
    assert row["age"] == 0
    assert "age is missing" not in row
    assert not any(row[name] for name in names if name.startswith("city"))
    row = dict(zip(names, rows[8], strict=True))
    assert row["visits"] > 100
    assert row["visits is missing"] == 0
    assert row["member is missing"] == 1
    assert row["born"] == 0


def test_the_encoding_is_that_of_the_summary(trained):
    trained.fetch("DROP TABLE IF EXISTS v, v_summary")
    trained.fetch(
        "SELECT cerebro_pack_validation('later', 'v', 'y', 'born, city, age, member, weight, visits', "
        "'train')"
    )
    rows = trained.fetch(
        "SELECT t.encoding::text = v.encoding::text, t.independent_varname, t.independent_vartype "
        "FROM train_summary t, v_summary v"
    )
    assert rows == [(True, ["features"], ["double precision[]"])]


BAD = {
    "'people','o','y','id, nope'": (errors.UndefinedColumn, "independent_varname: got 'nope'"),
    "'people','o','y',NULL": (errors.InvalidParameterValue, "independent_varname: got NULL"),
    "'people','o','y','id,,age'": (errors.InvalidParameterValue, "separated by commas"),
    "'people','o','y','id,id'": (errors.InvalidParameterValue, "'id' twice"),
    "'people','o','y','id,y'": (errors.InvalidParameterValue, "'y', which is the dependent"),
    "'people','o','nope','id'": (errors.UndefinedColumn, "dependent_varname: got 'nope'"),
    "'strange','o','y','*'": (errors.WrongObjectType, "column 'doc' is of type json; allowed"),
    "'strange','o','y','x'": (errors.WrongObjectType, r"column 'x' is of type real\[\]"),
    "'strange','o','y','void'": (errors.DataException, "'void': got no value in 3 rows"),
    "'strange','o','y','novel'": (errors.DataException, "'novel': got a text of 5000 characters"),
    "'strange','o','features','void'": (errors.InvalidParameterValue, "two columns named"),
    "'nobody','o','y','id'": (errors.DataException, "has no rows"),
    "'people','o','y','id',numbers:='onehot'": (
        errors.InvalidParameterValue,
        "numbers: got 'onehot'",
    ),
    "'people','o','y','id',numbers:=NULL": (errors.InvalidParameterValue, "numbers: got NULL"),
    "'people','o','y','id',categories:='one-hot'": (
        errors.InvalidParameterValue,
        "categories: got",
    ),
    "'people','o','y','id',max_categories:=0": (
        errors.InvalidParameterValue,
        "max_categories: got 0",
    ),
    "'people','o','y','id',excluded:='age'": (errors.InvalidParameterValue, "excluded: got 'age'"),
    "'people','o','y','*',excluded:='agee'": (errors.UndefinedColumn, "excluded: got 'agee'"),
    "'people','o','y','id',encodings:='[]'": (errors.InvalidParameterValue, "encodings: got"),
    "'people','o','y','id',encodings:='{\"agee\": \"none\"}'": (
        errors.UndefinedColumn,
        "encodings",
    ),
    "'people','o','y','id',encodings:='{\"age\": \"none\"}'": (
        errors.InvalidParameterValue,
        "got 'age', which is not among",
    ),
    "'people','o','y','city',encodings:='{\"city\": \"minmax\"}'": (
        errors.InvalidParameterValue,
        "'city' of type text: got 'minmax'; allowed: onehot, integer",
    ),
    "'people','o','y','id',encodings:='{\"id\": 3}'": (errors.InvalidParameterValue, "got 3"),
    "'people','taken','y','id'": (errors.DuplicateTable, "taken_encoding exists"),
}


@pytest.fixture(scope="module")
def strange(trained):
    trained.fetch(
        "CREATE TABLE strange AS SELECT i AS id, 1 AS y, 1 AS features, '{}'::json AS doc, "
        "ARRAY[1]::real[] AS x, NULL::int AS void, repeat('x', 5000) AS novel "
        "FROM generate_series(1, 3) i; CREATE TABLE nobody AS SELECT * FROM people LIMIT 0; "
        "CREATE TABLE taken_encoding (x int)"
    )
    return trained


@pytest.mark.parametrize("arguments", BAD)
def test_bad_arguments(strange, arguments):
    kind, message = BAD[arguments]
    before = strange.tables()
    with pytest.raises(kind, match=f"(?s){message}") as caught:
        strange.fetch(f"SELECT cerebro_pack_columns({arguments})")
    assert "cerebro_db" not in (caught.value.diag.context or "")
    assert strange.tables() == before


def test_the_nearest_name_is_reported(strange):
    for arguments, hint in (
        ("'id, agee'", "age"),
        ("'id', categories := 'one-hot'", "onehot"),
        ("'id', numbers := 'min_max'", "minmax"),
    ):
        with pytest.raises(errors.Error) as caught:
            strange.fetch(f"SELECT cerebro_pack_columns('people', 'o', 'y', {arguments})")
        assert caught.value.diag.message_hint == f"Did you mean '{hint}'?"


OTHERS = {
    "SELECT id, y, age FROM people": (
        errors.UndefinedColumn,
        "independent_varname: got '\"visits\"'",
    ),
    "SELECT id, y, age::text, visits, weight, member, city, born FROM people": (
        errors.DataException,
        "'age' is of type text; the recorded encoding is of integer",
    ),
}


@pytest.mark.parametrize("query", OTHERS)
def test_tables_that_do_not_fit_the_encoding(strange, query):
    kind, message = OTHERS[query]
    strange.fetch(f"DROP VIEW IF EXISTS unfit; CREATE VIEW unfit AS {query}")
    with pytest.raises(kind, match=message):
        strange.fetch("SELECT cerebro_pack_validation('unfit', 'o', 'y', NULL, 'train')")
    with pytest.raises(errors.InvalidParameterValue, match="allowed: NULL"):
        strange.fetch("SELECT cerebro_pack_validation('people', 'o', 'y', 'age', 'train')")


def test_an_encoding_that_someone_has_damaged(strange):
    strange.fetch("DROP TABLE IF EXISTS bad, bad_summary; CREATE TABLE bad AS TABLE train")
    strange.fetch("CREATE TABLE bad_summary AS TABLE train_summary")
    for text in ("{}", "[]", "1", '{"version": 1, "columns": [{}]}'):
        strange.fetch("UPDATE bad_summary SET encoding = %s", (text,))
        with pytest.raises(errors.InvalidParameterValue, match="got the encoding"):
            strange.fetch("SELECT cerebro_pack_validation('people', 'o', 'y', NULL, 'bad')")


def test_a_table_of_many_columns(strange):
    columns = ", ".join(f"i * {number} AS c{number}" for number in range(1, 901))
    strange.fetch(f"CREATE TABLE broad AS SELECT 1 AS y, {columns} FROM generate_series(1, 5) i")
    found = pack(strange, "*", "o_broad", "broad", numbers="minmax")
    assert found.shape == (5, 900)
    assert np.array_equal(np.unique(found, axis=0), np.arange(5)[:, np.newaxis] / 4 * np.ones(900))


def test_too_many_features(strange):
    strange.fetch(
        "CREATE TABLE wide AS SELECT i AS id, 1 AS y, 'v' || i AS a, 'w' || i AS b "
        "FROM generate_series(1, 6000) i"
    )
    with pytest.raises(
        errors.InvalidParameterValue, match="12000 features; allowed: 10000"
    ) as caught:
        pack(strange, "a, b", "o", "wide", max_categories=10000)
    assert "max_categories" in caught.value.diag.message_hint
    found = encode(strange, "a", "many", "wide", max_categories=10000, categories="integer")
    assert sorted(found[:, 0]) == list(range(1, 6001))
