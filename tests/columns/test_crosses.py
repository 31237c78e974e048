"""Crosses of columns: an id for each combination of values, wherever rows are read."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import psycopg2
import pytest
from servers import Caller

from cerebro_db.columns.recorded import parse_recorded, recorded_text
from cerebro_db.errors import InvalidArgument, UndefinedColumn, WrongObjectType
from cerebro_db.packing import pack
from cerebro_db.packing.encoding_rows import create_encoder, encode
from cerebro_db.postgres.calls.host import control_session
from cerebro_db.postgres.sessions.locks import transaction
from cerebro_db.requests.packing import (
    EncodeRequest,
    EncoderRequest,
    PackColumnsRequest,
    PackValidationRequest,
)

CROSS = '{"id": "none", "month*word": "cross"}'


@pytest.fixture(scope="module")
def rows(db: Any) -> Any:
    """Rows whose combinations are (1,'a,b') four times, (2,'"') three times, (1,NULL) twice, and (2,'a,b') once."""
    listed = [(1, "a,b")] * 4 + [(2, '"')] * 3 + [(1, None)] * 2 + [(2, "a,b")]
    db.fetch("CREATE TABLE crossed (id int, month int, word text, y real, tags int[], other int)")
    for number, (month, word) in enumerate(listed, 1):
        db.fetch(
            "INSERT INTO crossed VALUES (%s, %s, %s, %s, '{1}', 0)",
            (number, month, word, number / 2),
        )
    db.fetch("CREATE TABLE later_crossed AS TABLE crossed")
    db.fetch("ALTER TABLE later_crossed ALTER month TYPE bigint")
    db.fetch("UPDATE later_crossed SET month = 3 WHERE id = 1")
    return db


def packed(
    caller: Caller, output: str = "crosses", encodings: str = CROSS, columns: str = "id"
) -> None:
    request = PackColumnsRequest(
        "crossed", output, "y", columns, num_partitions=2, encodings=encodings, replace=True
    )
    pack.pack(caller, request)


def ids_of(db: Any, table: str) -> list[int]:
    """Ids in the order of the rows."""
    ids, order = (db.unpack(table, name, "y").features for name in ("ids", "features"))
    return [int(one) for one in ids[np.argsort(order[:, 0]), 0]]


EXPECTED = [2] * 4 + [3] * 3 + [0, 0, 1]


def test_a_combination_has_an_id_where_it_is_not_rare(rows: Any, caller: Caller) -> None:
    packed(caller)
    assert ids_of(rows, "crosses") == EXPECTED
    columns = rows.value("SELECT input_columns FROM crosses_summary")
    assert columns[1] == [
        {"column": "month*word", "encoding": "cross", "first": 0, "width": 1, "ids": 4, "has_missing": True}
    ]  # fmt: skip
    described = rows.fetch(
        "SELECT code, feature FROM crosses_encoding WHERE input = 'ids' ORDER BY 1"
    )
    assert described == [
        (0, "month*word is missing"),
        (1, "month*word is none of these"),
        (2, 'month*word = (1,"a,b")'),
        (3, 'month*word = (2,"""")'),
    ]
    packed(caller, "often", '{"id": "none", "month*word": "cross(4)"}')
    assert ids_of(rows, "often") == [2] * 4 + [1] * 3 + [0, 0, 1]


def test_rows_of_other_tables_have_the_same_ids(rows: Any, caller: Caller) -> None:
    packed(caller)
    request = PackColumnsRequest("crossed", "again", "y", None, encoding_of="crosses", replace=True)
    pack.pack(caller, request)
    assert ids_of(rows, "again") == EXPECTED
    same = PackColumnsRequest(
        "crossed", "again", "y", None, encoding_of="crosses", encodings=CROSS, replace=True
    )
    pack.pack(caller, same)
    validation = PackValidationRequest("later_crossed", "later", "y", None, "crosses", replace=True)
    pack.pack(caller, validation)
    assert ids_of(rows, "later") == [1, *EXPECTED[1:]]
    rows.fetch("DROP TABLE IF EXISTS encoded")
    with control_session(caller.pool, caller.search_path) as session, transaction(session):
        encode(session, EncodeRequest("later_crossed", "crosses", "encoded", "id"), caller.notice)
        function = EncoderRequest("later_crossed", "crosses", "ids_of_row", replace=True)
        create_encoder(session, function, caller.notice)
    encoded = [row[0] for row in rows.fetch("SELECT ids[1]::int FROM encoded ORDER BY id")]
    assert encoded == [1, *EXPECTED[1:]]
    by_function = rows.fetch("SELECT (ids_of_row(s))[2]::int FROM later_crossed s ORDER BY id")
    assert [row[0] for row in by_function] == encoded


def test_what_is_recorded_is_enough(rows: Any, caller: Caller) -> None:
    packed(caller)
    text = json.dumps(rows.value("SELECT encoding FROM crosses_summary"))
    found = parse_recorded(text, "crosses")
    assert parse_recorded(recorded_text(found), "crosses") == found
    assert found.names == ["id", "month", "word"]
    damaged = json.loads(text)
    damaged["columns"][1]["parts"] = damaged["columns"][1]["parts"][:1]
    with pytest.raises(InvalidArgument, match="allowed: what packing has written"):
        parse_recorded(json.dumps(damaged), "crosses")


REFUSED = {
    '{"month*nobody": "cross"}': (UndefinedColumn, "encodings: got 'nobody'"),
    '{"month*month": "cross"}': (InvalidArgument, "allowed: 2 to 4 different columns"),
    '{"month*tags": "cross"}': (WrongObjectType, "the column 'tags' is of type integer"),
    '{"month*y": "cross"}': (InvalidArgument, "which is the dependent variable"),
    '{"month*word": "ids"}': (
        InvalidArgument,
        r"encodings, 'month\*word': got 'ids'; allowed: cross",
    ),
    '{"month*word": "cross(0)"}': (InvalidArgument, r"allowed: cross\(least from 1 to 1000000\)"),
    '{"id": "cross"}': (InvalidArgument, "encodings, 'id' of type integer: got 'cross'"),
}


@pytest.mark.parametrize("encodings", REFUSED)
def test_what_cannot_be_crossed_is_refused_before_any_work(
    rows: Any, caller: Caller, encodings: str
) -> None:
    error, message = REFUSED[encodings]
    with pytest.raises(error, match=message):
        packed(caller, "refused", encodings)
    assert rows.value("SELECT to_regclass('refused') IS NULL")


def test_another_cross_than_the_recorded_one_is_refused(rows: Any, caller: Caller) -> None:
    packed(caller)
    for encodings, got in (
        (
            '{"id": "none", "month*word": "cross(3)"}',
            r"got 'cross\(3\)' for the column 'month\*word'",
        ),
        ('{"id": "none", "month*other": "cross"}', r"got nothing for the column 'month\*word'"),
    ):
        request = PackColumnsRequest(
            "crossed", "wrong", "y", None, encoding_of="crosses", encodings=encodings
        )
        with pytest.raises(InvalidArgument, match=got):
            pack.pack(caller, request)


def test_a_model_learns_from_a_cross(rows: Any, caller: Caller) -> None:
    """The target is that of the combination alone; raw rows are predicted, and studies name the cross."""
    rows.fetch(
        "CREATE TABLE xor AS SELECT id, id % 2 AS a, id / 2 % 2 AS b, "
        "((id % 2 + id / 2 % 2) % 2)::real AS y FROM generate_series(1, 200) id"
    )
    encodings = '{"a": "none", "b": "none", "a*b": "cross"}'
    request = PackColumnsRequest(
        "xor", "xor_packed", "y", "a, b", num_partitions=2, encodings=encodings
    )
    pack.pack(caller, request)
    rows.fetch(
        "SELECT cerebro_load_model('xor_nets', cerebro_tabular('xor_packed', depth := 1, units := 8, dropout := 0))"
    )
    rows.fetch(
        "SELECT cerebro_fit('xor_packed', 'xor_m', 'xor_nets', 1, 'loss=''mse'',optimizer=''Adam(0.02)''', "
        "'batch_size=20', 30, seed := 1)"
    )
    rows.fetch("SELECT cerebro_predict('xor_m', 'xor', 'id', NULL, 'xor_p', 'response')")
    worst = rows.value("SELECT max(abs(p.estimated - x.y)) FROM xor_p p JOIN xor x USING (id)")
    assert worst < 0.2
    rows.fetch("SELECT cerebro_explain('xor_m', 'xor_packed', 'xor_e')")
    explained = dict(rows.fetch("SELECT column_name, importance FROM xor_e"))
    assert explained["a*b"] > max(explained["a"], explained["b"])
    rows.fetch("SELECT cerebro_dependence('xor_m', 'xor', 'xor_d')")
    assert {row[0] for row in rows.fetch("SELECT column_name FROM xor_d")} == {"a", "b"}
    with pytest.raises(
        psycopg2.errors.InvalidParameterValue, match=r"got 'a\*b'; allowed: 'a', 'b'"
    ):
        rows.fetch("SELECT cerebro_dependence('xor_m', 'xor', 'xor_d2', columns := ARRAY['a*b'])")
