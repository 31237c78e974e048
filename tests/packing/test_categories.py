"""Categories are equal as the type of their column says, also in columns of another type that loses nothing."""

from __future__ import annotations

import json

import psycopg2
import pytest


def packed(db, source, columns, output="c", **more):
    encodings = json.dumps(dict.fromkeys(columns, more.pop("method", "onehot")))
    listed = ", ".join(f'"{name}"' for name in columns)
    db.fetch(
        f"SELECT cerebro_pack_columns('{source}', '{output}', 'y', %s, encodings := %s, replace := true)",
        (listed, encodings),
    )


def encoded(db, source, trained="c"):
    db.fetch(
        f"SELECT cerebro_encode('{source}', '{trained}', 'features_of', 'id', replace := true)"
    )
    return [row[0] for row in db.fetch("SELECT features FROM features_of ORDER BY id")]


def categories(db, output="c"):
    return [
        row[0]
        for row in db.fetch(f"SELECT category FROM {output}_encoding ORDER BY position, code")
    ]


@pytest.fixture(scope="module")
def years(db):
    db.fetch(
        "CREATE TABLE years AS SELECT k AS id, k % 2 AS y, 2000 + k % 3 AS v FROM generate_series(1, 9) k"
    )
    return db


NUMBERS = [
    "smallint",
    "bigint",
    "real",
    "double precision",
    "numeric",
    "numeric(6,1)",
    "numeric(8,3)",
]


@pytest.mark.parametrize("method", ["onehot", "integer"])
@pytest.mark.parametrize("trained", ["integer", "real", "double precision", "numeric(6,1)"])
def test_numbers_of_all_types_are_one_category(years, trained, method):
    years.fetch(
        f"DROP VIEW IF EXISTS v_{method}; CREATE VIEW v_{method} AS SELECT id, y, v::{trained} AS v FROM years"
    )
    packed(years, f"v_{method}", ["v"], method=method)
    wanted = encoded(years, f"v_{method}")
    assert sorted(map(tuple, wanted[:3])) == (
        [(0, 0, 1), (0, 1, 0), (1, 0, 0)] if method == "onehot" else [(1,), (2,), (3,)]
    )
    for kind in NUMBERS:
        years.fetch(
            f"DROP VIEW IF EXISTS other; CREATE VIEW other AS SELECT id, y, v::{kind} AS v FROM years"
        )
        assert encoded(years, "other") == wanted, kind


def test_numbers_are_written_in_one_way(db):
    db.fetch(
        "CREATE TABLE written AS SELECT k AS id, k % 2 AS y, "
        "(ARRAY['1', '1.0', '1.00', '0', '-0.0', '0.50', '100', '1e2'])[k]::numeric AS n, "
        "(ARRAY['1', '1.0', '-0', '0', '0.1', '1e20', '1e-7', '0.30000000000000004'])[k]::float8 AS f, "
        "(ARRAY['1', '1.0', '-0', '0', '0.1', '1e20', '1e-7', '0.3'])[k]::real AS r FROM generate_series(1, 8) k"
    )
    # Where 15 digits do not tell a number, earlier servers write 18, and not as many as are needed.
    long = (
        "0.300000000000000044" if db.connection.server_version < 120000 else "0.30000000000000004"
    )
    for name, wanted in (
        ("n", ["0", "0.5", "1", "100"]),
        ("f", ["0", "0.0000001", "0.1", long, "1", "100000000000000000000"]),
        ("r", ["0", "0.0000001", "0.1", "0.3", "1", "100000000000000000000"]),
    ):
        packed(db, "written", [name])
        assert categories(db) == wanted
        assert all(sum(features) == 1 for features in encoded(db, "written")), name
        packed(db, "written", [name], method="integer")
        assert all(features[0] > 0 for features in encoded(db, "written")), name


@pytest.mark.parametrize(
    "kind", ["double precision", "real", "numeric", "date", "timestamp", "timestamptz"]
)
def test_nan_and_infinity_are_missing(db, kind):
    dated = kind not in ("double precision", "real", "numeric")
    values = ["2026-01-01", "2026-01-02", "infinity", None] if dated else ["1", "2", "NaN", None]
    db.fetch("DROP TABLE IF EXISTS holes; CREATE TABLE holes (id integer, y integer, v text)")
    for number, value in enumerate(values * 2):
        db.fetch("INSERT INTO holes VALUES (%s, %s, %s)", (number, number % 2, value))
    db.fetch(f"ALTER TABLE holes ALTER v TYPE {kind} USING v::{kind}")
    packed(db, "holes", ["v"])
    assert len([one for one in categories(db) if one is not None]) == 2
    assert encoded(db, "holes")[:4] == [[1, 0, 0], [0, 1, 0], [0, 0, 1], [0, 0, 1]]
    packed(db, "holes", ["v"], method="integer")
    assert encoded(db, "holes")[:4] == [[1], [2], [3], [3]]


@pytest.fixture(scope="module")
def days(db):
    db.fetch(
        "CREATE TABLE days AS SELECT k AS id, k % 2 AS y, date '2026-03-01' + k % 2 AS day, "
        "(date '2026-03-01' + k % 2)::timestamp AS moment, (k % 2 = 0) AS flag, "
        "timestamptz '2026-03-01 23:30:00.5+00' + k % 2 * interval '1 hour' AS instant, "
        "(ARRAY['1 day', '24:00:00'])[1 + k % 2]::interval AS span, date '0044-03-15 BC' AS ides "
        "FROM generate_series(1, 4) k"
    )
    return db


def renamed(db, name, value):
    db.fetch(
        f"DROP VIEW IF EXISTS other; CREATE VIEW other AS SELECT id, y, {value} AS {name} FROM days"
    )


def test_dates_are_the_midnights_of_timestamps(days):
    for name, other in (("day", "moment"), ("moment", "day")):
        packed(days, "days", [name])
        assert categories(days) == ["2026-03-01", "2026-03-02"]
        renamed(days, name, other)
        assert encoded(days, "other") == encoded(days, "days") == [[0, 1], [1, 0]] * 2
        renamed(days, name, "moment + interval '1 second'")
        assert encoded(days, "other") == [[0, 0]] * 4
    packed(days, "days", ["instant", "span", "ides"])
    assert categories(days) == [
        "2026-03-01 23:30:00.5+00",
        "2026-03-02 00:30:00.5+00",
        "1 day",
        "0044-03-15 BC",
    ]
    assert encoded(days, "days") == [[0, 1, 1, 1], [1, 0, 1, 1]] * 2


def test_truth_values_are_zero_and_one_among_numbers(days):
    renamed(days, "flag", "flag::integer")
    packed(days, "other", ["flag"])
    assert encoded(days, "days") == encoded(days, "other") == [[1, 0], [0, 1]] * 2


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("flag", "1"),
        ("flag", "'true'::text"),
        ("day", "instant"),
        ("day", "day::text"),
        ("instant", "moment"),
        ("instant", "day"),
        ("span", "time '01:00'"),
    ],
)
@pytest.mark.parametrize("method", ["onehot", "integer"])
def test_a_type_that_would_lose_something_is_refused(days, name, value, method):
    packed(days, "days", [name], method=method)
    renamed(days, name, value)
    with pytest.raises(
        psycopg2.DataError, match=f"the column '{name}' is of type .*; the recorded"
    ):
        encoded(days, "other")


def test_numbers_of_days_of_another_origin_are_refused(days):
    packed(days, "days", ["moment"], method="standardize")
    renamed(days, "moment", "day")
    assert encoded(days, "other") == encoded(days, "days")
    renamed(days, "moment", "span")
    with pytest.raises(psycopg2.DataError, match="the column 'moment' is of type interval"):
        encoded(days, "other")


WRITTEN = "(ARRAY['Oslo', 'OSLO', 'rome', 'Rome'])[1 + k % 4]"


def test_texts_are_equal_as_their_type_says(db):
    db.fetch(
        "CREATE EXTENSION IF NOT EXISTS citext SCHEMA public; CREATE DOMAIN town AS citext; "
        f"CREATE TABLE towns AS SELECT k AS id, k % 2 AS y, {WRITTEN}::citext AS c, {WRITTEN}::town AS d, "
        f"{WRITTEN} AS t FROM generate_series(0, 7) k"
    )
    for method in ("onehot", "integer"):
        packed(db, "towns", ["c", "d"], method=method)
        wanted = [[1, 0], [0, 1]] if method == "onehot" else [[1], [2]]
        rows = encoded(db, "towns")
        assert rows[:4] == [2 * wanted[0], 2 * wanted[0], 2 * wanted[1], 2 * wanted[1]]
        db.fetch("CREATE OR REPLACE VIEW plain AS SELECT id, y, t AS c, t AS d FROM towns")
        assert encoded(db, "plain") == rows
    packed(db, "towns", ["t"])
    assert categories(db) == ["OSLO", "Oslo", "Rome", "rome"]


@pytest.mark.not_on_segments("Greenplum 6 has no such collations")
def test_texts_are_equal_as_their_collation_says(db):
    if db.connection.server_version < 120000:
        pytest.skip("this server has no collations that are not deterministic")
    db.fetch(
        "CREATE COLLATION nd (provider = icu, locale = 'und-u-ks-level2', deterministic = false); "
        f"CREATE TABLE collated AS SELECT k AS id, k % 2 AS y, {WRITTEN} COLLATE nd AS v FROM generate_series(0, 7) k"
    )
    for method in ("onehot", "integer"):
        packed(db, "collated", ["v"], method=method)
        wanted = [[1, 0], [0, 1]] if method == "onehot" else [[1], [2]]
        assert encoded(db, "collated")[:4] == [wanted[0], wanted[0], wanted[1], wanted[1]]
    db.fetch("SELECT cerebro_create_encoder('collated', 'c', 'of_collated')")
    assert db.value("SELECT of_collated(c) FROM collated c WHERE id = 1") == [1]


def test_an_encoding_of_an_earlier_version_stays_what_it_was(db):
    db.fetch(
        "CREATE TABLE old AS SELECT k AS id, k % 2 AS y, (ARRAY['1', '1.0', 'NaN'])[k]::numeric AS v "
        "FROM generate_series(1, 3) k"
    )
    packed(db, "old", ["v"])
    ((text,),) = db.fetch("SELECT encoding::text FROM c_summary")
    recorded = json.loads(text)
    (column,) = recorded["columns"]
    del column["comparison"], column["collation"], column["statistics"]
    column |= {"categories": ["1", "1.0", "NaN"], "has_missing": False}
    db.fetch("UPDATE c_summary SET encoding = %s", (json.dumps(recorded),))
    assert encoded(db, "old") == [[1, 0, 0], [0, 1, 0], [0, 0, 1]]
    db.fetch("CREATE VIEW older AS SELECT id, y, v::float8 AS v FROM old")
    with pytest.raises(psycopg2.DataError, match="of type double precision; the recorded"):
        encoded(db, "older")
