"""A database for each file of tests, a client of it, and a kind of column of their own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import pytest
from servers import Caller

from cerebro_db.columns.encoded import METHODS
from cerebro_db.columns.numbers import Plain
from cerebro_db.columns.values import Values
from cerebro_db.postgres.dialects.choice import dialect_of
from cerebro_db.postgres.sessions.pool import SessionPool
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


@pytest.fixture
def caller(db: Any, has_segments: bool) -> Iterator[Caller]:
    dialect = dialect_of(
        db.connection.server_version, "greenplum6" if has_segments else "postgresql"
    )
    pool = SessionPool(db.dsn, dialect.session_settings())
    yield Caller(pool, dialect, "public, cerebro")
    pool.close()
