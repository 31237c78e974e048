"""Recorded encodings: the same again out of JSON, and nothing that someone made up."""

from __future__ import annotations

import json

import pytest

from cerebro_db.columns.categories import Integer, OneHot
from cerebro_db.columns.encoded import Encoding, Statistics
from cerebro_db.columns.images import ImageEncoding, ImageFormat
from cerebro_db.columns.numbers import MinMax, Standardize
from cerebro_db.columns.recorded import parse_recorded, recorded_text
from cerebro_db.columns.values import Values
from cerebro_db.errors import InvalidArgument

COLUMNS = Encoding(
    (
        Standardize("a", "integer", Values.NUMBER, True, center=0.1, scale=3.0, fill=0.1),
        OneHot("b'\"%", "text", Values.CATEGORY, True, categories=("", "é")),
        Integer("c", "date", Values.TIME, False, categories=("x",)),
    )
)
IMAGE = ImageEncoding("i", ImageFormat.ENCODED, (4, 5, 3))


@pytest.mark.parametrize("encoding", [COLUMNS, IMAGE])
def test_an_encoding_comes_back(encoding):
    assert parse_recorded(recorded_text(encoding), "x") == encoding


def test_statistics_make_no_other_encoding():
    known, unknown = (
        Standardize("a", "integer", Values.NUMBER, statistics=statistics)
        for statistics in (Statistics(3, 1), None)
    )
    assert known == unknown
    assert not known != unknown  # noqa: SIM202
    assert hash(known) == hash(unknown)
    assert known != MinMax("a", "integer", Values.NUMBER)


def test_features_are_counted():
    assert COLUMNS.width == 2 + 3 + 1
    assert [row["position"] for row in COLUMNS.described()] == [1, 2, 3, 4, 5, 6, 6]


CHANGES = {
    "version": lambda v: v | {"version": 2},
    "no version": lambda v: {"columns": v["columns"]},
    "no columns": lambda v: v | {"columns": []},
    "a text": lambda v: v | {"columns": "abc"},
    "null": lambda v: v | {"columns": None},
    "twice": lambda v: v | {"columns": v["columns"] + v["columns"]},
    "an image": lambda v: v | {"image": {}},
    "an image without end": lambda v: (
        v | {"image": {"name": "i", "format": "raw", "shape": [2**31, 2**31]}}
    ),
}
FIELDS = {
    "name": [None, 1, "\0", "\ud800"],
    "type": [None, 1],
    "kind": [None, "text", 1, []],
    "method": [None, "", "onehot", "integer", 7],
    "scale": [0, "x", None, float("nan"), float("inf"), 10**400],
    "center": [float("nan"), None, [], 1e308],
    "fill": [float("-inf"), {}, -1e308],
    "categories": [None, "abc", [None], [1], {"a": 1}, ["\0"], []],
}


@pytest.mark.parametrize("name", CHANGES)
def test_what_packing_has_not_written(name):
    value = CHANGES[name](json.loads(recorded_text(COLUMNS)))
    with pytest.raises(InvalidArgument, match="x: got the encoding"):
        parse_recorded(json.dumps(value), "x")


@pytest.mark.parametrize("field", FIELDS)
def test_fields_that_cannot_be(field):
    for wrong in FIELDS[field]:
        value = json.loads(recorded_text(COLUMNS))
        value["columns"][field == "categories"][field] = wrong
        if (field, wrong) in (("center", 1e308), ("fill", -1e308)):
            value["columns"][0]["scale"] = 1e-3
        with pytest.raises(InvalidArgument, match="x: got the encoding"):
            parse_recorded(json.dumps(value), "x")
    value["columns"][0] = {}
    with pytest.raises(InvalidArgument, match="x: got the encoding"):
        parse_recorded(json.dumps(value), "x")


@pytest.mark.parametrize("text", ["", "{", "null", "1", "[]", "[" * 100_000, '{"version": 1}'])
def test_what_is_no_encoding(text):
    with pytest.raises(InvalidArgument, match="x: got the encoding"):
        parse_recorded(text, "x")


def test_a_category_without_categories():
    value = json.loads(recorded_text(COLUMNS))
    value["columns"][2]["categories"] = []
    with pytest.raises(InvalidArgument):
        parse_recorded(json.dumps(value), "x")


def test_what_the_first_version_has_recorded():
    """It wrote all attributes of all kinds, and compared categories as the server writes them."""
    every = {
        "has_missing": False, "center": 0.0, "scale": 1.0, "fill": 0.0, "categories": [],
    }  # fmt: skip
    age = every | {
        "name": "age",
        "type": "integer",
        "kind": "number",
        "method": "minmax",
        "center": 3.0,
    }
    city = every | {
        "name": "c",
        "type": "text",
        "kind": "category",
        "method": "onehot",
        "categories": ["x"],
    }
    found = parse_recorded(json.dumps({"version": 1, "columns": [age, city]}), "x")
    assert found == Encoding(
        (
            MinMax("age", "integer", Values.NUMBER, center=3.0),
            OneHot("c", "text", Values.CATEGORY, categories=("x",)),
        )
    )
