"""A database for each file of tests, and a kind of column of their own."""

from __future__ import annotations

from typing import ClassVar

import pytest

from cerebro_db.columns.encoded import METHODS
from cerebro_db.columns.numbers import Plain
from cerebro_db.columns.values import Values
from tests.models.conftest import network as network
from tests.packing.conftest import db as db


class TextLength(Plain, frozen=True, omit_defaults=False, eq=False):
    """The number of characters of a text: all that a new kind has to say."""

    method: ClassVar[str] = "length"
    argument: ClassVar[str] = ""
    takes: ClassVar[tuple[Values, ...]] = (Values.CATEGORY,)

    def value(self, alias: str) -> str:
        return f"pg_catalog.length({self._sql(alias)}::text)::double precision"

    def is_finite(self, alias: str) -> str:
        return f"{self._sql(alias)} IS NOT NULL"


KINDS = {**METHODS, TextLength.method: TextLength}


@pytest.fixture(autouse=True)
def with_lengths(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kind is known while a test runs."""
    monkeypatch.setitem(METHODS, TextLength.method, TextLength)
