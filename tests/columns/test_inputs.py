"""Kinds of inputs: what they take, with which message they refuse the rest, and what is wrong with values."""

from __future__ import annotations

from typing import Any

import pytest

from cerebro_db.columns import inputs
from cerebro_db.columns.images import image_encoding
from cerebro_db.columns.values import Column
from cerebro_db.errors import WrongObjectType
from cerebro_db.training.buffers import WIRE_DTYPES

REALS = Column("a", "real[]", 1021, "real[]", "A", 700, "N")
NUMERICS = Column("n", "numeric(9,2)[]", 1231, "numeric[]", "A", 1700, "N")
WHOLE = Column("i", "integer", 23, "integer", "N", None, None)
TEXT = Column("t", "text", 25, "text", "S", None, None)
TEXTS = Column("ts", "text[]", 1009, "text[]", "A", 25, "S")
MONEY = Column("m", "money[]", 791, "money[]", "A", 790, "N")
DATA = Column("d", "bytea", 17, "bytea", "U", None, None)
IMAGE = image_encoding("other", "raw", [2, 2])


def test_numbers_are_sent_in_the_types_that_workers_read() -> None:
    assert set(WIRE_DTYPES) == inputs._SENT_OIDS


@pytest.mark.parametrize(
    ("found", "sql"),
    [
        (inputs.input_of(REALS), 's."a"'),
        (inputs.input_of(NUMERICS), 's."n"::double precision[]'),
        (inputs.input_of(REALS, "x", is_only=False), 's."a"'),
        (inputs.input_of(WHOLE, "x", is_only=False), 'ARRAY[s."i"::bigint]'),
        (inputs.image_input(DATA, IMAGE), 's."d"'),
    ],
)
def test_what_is_read(found: inputs.Input, sql: str) -> None:
    assert found.value("s") == sql
    assert found.readings("s") == [(found.column.name, sql)]
    assert found.copied("x0").value("t") == 't."x0"'
    assert found.copied("x0").sent("v") == found.sent("v")
    assert found.element_oid in WIRE_DTYPES


@pytest.mark.parametrize(
    ("make", "column", "told"),
    [
        (inputs.input_of, WHOLE, "'i' is of type integer; allowed: arrays of smallint"),
        (inputs.input_of, TEXTS, r"'ts' is of type text\[\]; allowed: arrays of smallint"),
        (inputs.input_of, MONEY, "'m' is of type money"),
        (
            lambda one: inputs.input_of(one, "given", is_only=False),
            TEXT,
            "given: the column 't' is of type text; allowed: small",
        ),
        (lambda one: inputs.image_input(one, IMAGE), TEXT, "'t' is of type text; allowed: bytea"),
    ],
)
def test_what_is_refused(make: Any, column: Column, told: str) -> None:
    with pytest.raises(WrongObjectType, match=told) as refused:
        make(column)
    assert refused.value.hint


def test_an_image_is_recorded_under_the_name_of_its_column() -> None:
    found = inputs.image_input(DATA, IMAGE)
    assert found.recorded.name == "d"
    assert found.recorded == IMAGE
    assert found.can_be_damaged
    assert inputs.input_of(REALS).recorded is None
