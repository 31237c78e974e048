"""Columns that name the rows of a prediction, and predictions of no rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg2
import pytest
from reasons import NO_SUCH_SQL

from tests.models.conftest import Database


@pytest.fixture(scope="module")
def db(trained: Database) -> Iterator[Database]:
    """Rows with ids of many types."""
    for statement in (
        "CREATE TYPE place AS (shelf integer, label text)",
        'CREATE TABLE "Named" AS SELECT id, id / 10 AS "The shelf", id % 10 AS box, '
        "decode(lpad(to_hex(id), 4, '0'), 'hex') AS bytes, md5(id::text)::uuid AS uuid, "
        "ROW(id, 'a \"b\", c')::place AS place, id / 2 AS twice, "
        "json_build_array(id) AS json, point(id, 1) AS point, now() + id * interval '1 day' AS at, "
        "nullif(id, 7) AS missing, ARRAY[id] AS list, x FROM rows",
        'ALTER TABLE "Named" ADD PRIMARY KEY (id)',
        'CREATE VIEW seen AS SELECT * FROM "Named"',
    ):
        trained.fetch(statement)
    yield trained
    for statement in ("DROP VIEW seen", 'DROP TABLE "Named"', "DROP TYPE place"):
        trained.fetch(statement)


def predict(db: Any, ids: str, table: str = "Named", kind: str = "response") -> str:
    """Predictions in the table ``answers``; what was told."""
    db.notices()
    db.fetch(
        "SELECT cerebro_predict('halves', %s, %s, 'x', 'answers', %s, replace := true)",
        (table, ids, kind),
    )
    return str(db.notices())


@pytest.mark.parametrize("table", ["Named", "seen"])
@pytest.mark.parametrize("column", ["id", "bytes", "uuid", "at", "json", "point", "place"])
def test_ids_of_any_type(db: Database, column: str, table: str) -> None:
    assert "share" not in predict(db, column, table)
    kinds = "SELECT format_type(atttypid, atttypmod) FROM pg_attribute WHERE attname = %s "
    kinds += "AND attrelid = ANY (ARRAY['answers', '\"Named\"']::regclass[])"
    assert len(set(db.fetch(kinds, (column,)))) == 1
    rows = db.fetch(
        f'SELECT a.{column}::text FROM answers a EXCEPT SELECT n.{column}::text FROM "Named" n'
    )
    assert rows == []
    assert db.value(f"SELECT count(DISTINCT {column}::text) FROM answers") == 120


@pytest.mark.parametrize("table", ["Named", "seen"])
def test_several_columns_name_a_row(db: Database, table: str) -> None:
    assert predict(db, "id", table) == ""
    db.fetch("CREATE TABLE by_id AS SELECT * FROM answers")
    assert predict(db, '"The shelf", box', table) == ""
    assert (
        db.value(
            'SELECT count(*) FROM answers a JOIN "Named" n USING ("The shelf", box) '
            "JOIN by_id b ON b.id = n.id AND b.class_value = a.class_value AND b.prob = a.prob"
        )
        == 120
    )
    db.fetch("DROP TABLE by_id")
    predict(db, 'place, "The shelf"', table)
    assert db.value("SELECT count(DISTINCT (place).shelf) FROM answers") == 120


def test_repeated_ids_are_reported(db: Database) -> None:
    told = predict(db, "twice", kind="prob")
    assert '118 rows of public."Named" share 59 values of twice' in told
    assert "share" in predict(db, "twice", "seen")
    assert "share" in predict(db, '"The shelf"')
    db.fetch('CREATE TABLE uniquely AS SELECT DISTINCT ON (twice) * FROM "Named"')
    assert predict(db, "twice", "uniquely") == ""
    db.fetch("DROP TABLE uniquely")


def test_ids_that_are_refused_have_a_hint(db: Database) -> None:
    for ids, code, told in (
        ("missing", "22000", "'missing' is NULL"),
        ('"The shelf", missing', "22000", "'The shelf' or 'missing' is NULL"),
        ("list", "42809", "type integer[]"),
        ("id, id", "22023", "'id' twice"),
        ("id, nothing", "42703", "nothing"),
    ):
        with pytest.raises(psycopg2.Error, match=r"id_col|column") as raised:
            predict(db, ids)
        assert raised.value.pgcode == code
        assert told in str(raised.value)
        assert raised.value.diag.message_hint


@pytest.mark.parametrize("source", ["empty", "seen_empty", "in_parts"])
def test_no_rows_give_no_predictions(db: Database, source: str) -> None:
    if source == "in_parts" and db.connection.server_version < 100000:
        pytest.skip(NO_SUCH_SQL)
    db.fetch("CREATE TABLE empty AS SELECT id, x FROM rows WHERE false")
    db.fetch("CREATE VIEW seen_empty AS SELECT * FROM empty")
    if source == "in_parts":
        db.fetch("CREATE TABLE in_parts (id integer, x real[]) PARTITION BY RANGE (id)")
    names = (source, "id", "x")
    for more in ("", ", num_workers := 2", ", replace := true"):
        db.fetch("DROP TABLE IF EXISTS answers" if "replace" not in more else "SELECT 1")
        db.fetch(f"SELECT cerebro_predict('halves', %s, %s, %s, 'answers'{more})", names)
        assert db.fetch("SELECT * FROM answers") == []
        db.fetch("SELECT id, class_name, class_value, prob, rank FROM answers")
    db.fetch("CREATE TABLE brought_in AS SELECT 1 AS model_id, model_arch, model_weights FROM sums")
    db.fetch(
        "SELECT cerebro_predict_byom('brought_in', 1, %s, 'id', 'x', 'answers', 'response', "
        "replace := true)",
        (source,),
    )
    assert db.fetch("SELECT id, class_name, estimated FROM answers") == []
    db.fetch("DROP TABLE brought_in, answers")
    db.fetch("DROP TABLE IF EXISTS in_parts")
    db.fetch("DROP VIEW seen_empty")
    db.fetch("DROP TABLE empty")


def test_where_no_rows_mean_nothing_it_is_reported(db: Database) -> None:
    db.fetch("CREATE TABLE empty AS SELECT id, x, half FROM rows WHERE false")
    db.fetch("CREATE TABLE empty_packed AS SELECT * FROM halves_packed WHERE false")
    db.fetch("CREATE TABLE empty_packed_summary AS SELECT * FROM halves_packed_summary")
    for call in (
        "cerebro_pack('empty', 'packed', 'half', 'x')",
        "cerebro_pack_validation('empty', 'packed', 'half', 'x', 'halves_packed')",
        "cerebro_train_test_split('empty', 'split', 0.5)",
        "cerebro_predict('halves', 'empty_packed', NULL, NULL, 'answers')",
        "cerebro_evaluate('halves', 'empty_packed', 'no_scores')",
        "cerebro_confusion_matrix('halves', 'empty_packed', 'no_scores')",
        "cerebro_fit_multiple('empty_packed', 'fitted', 'halves_configs', 1)",
    ):
        with pytest.raises(psycopg2.Error, match=r"\b(no|0) rows") as raised:
            db.fetch(f"SELECT {call}")
        assert raised.value.pgcode in ("22000", "22023", "42809"), call
        assert raised.value.diag.message_hint, call
    db.fetch("DROP TABLE empty, empty_packed, empty_packed_summary")


def test_encoding_no_rows_gives_an_empty_table(db: Database) -> None:
    db.fetch("CREATE VIEW numbers AS SELECT id, id % 7 AS day, half FROM rows")
    db.fetch("SELECT cerebro_pack_columns('numbers', 'numbers_packed', 'half', 'id, day')")
    db.fetch("CREATE VIEW no_numbers AS SELECT * FROM numbers WHERE false")
    db.fetch("SELECT cerebro_encode('no_numbers', 'numbers_packed', 'encoded', 'id, day')")
    assert db.fetch("SELECT id, day, features FROM encoded") == []
    db.fetch("DROP VIEW no_numbers")
    db.fetch("DROP VIEW numbers")
    for table in ("numbers_packed", "encoded"):
        db.fetch("SELECT cerebro_drop_outputs(%s)", (table,))
