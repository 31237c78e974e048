"""Facts of a table that decide what is planned: of its target and its columns, of the time and the groups by which it is split."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from cerebro_db.columns.values import Column, Values
from cerebro_db.errors import InvalidData, WrongObjectType
from cerebro_db.postgres.calls.settings import read_as
from cerebro_db.postgres.names import quote
from cerebro_db.postgres.sessions.locks import transaction
from cerebro_db.postgres.sessions.session import Session
from cerebro_db.postgres.tables.relations import Relation
from cerebro_db.runs.automl.features import ColumnFacts, can_be_encoded
from cerebro_db.runs.automl.tasks import TargetFacts

# Rows that decide which columns are used, and columns of a statement.
_ROWS_OF_FEATURES, _COLUMNS_AT_ONCE = 100_000, 100
# Values that are looked at: fewer rows of very many columns.
_MOST_VALUES, _FEWEST_ROWS = 10_000_000, 10_000
_NUMERIC_TEXT = r"^\s*[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?\s*$"


class TableFacts:
    """Reader of facts of a table, in a session that sees what the caller sees.

    Args:
        session: in a transaction.
        source: the table.
    """

    def __init__(self, session: Session, source: Relation) -> None:
        self._session, self._source = session, source

    def target(self, column: Column) -> TargetFacts:
        """Facts of the target."""
        value = f"s.{quote(column.name)}"
        is_text = column.values is Values.CATEGORY and column.category == "S"
        listed = [
            "pg_catalog.count(*)",
            f"pg_catalog.count({value})",
            f"pg_catalog.count(DISTINCT {value})" if can_be_encoded(column) else "0",
            f"pg_catalog.count(CASE WHEN {value}::text OPERATOR(pg_catalog.~) %s THEN 1 END)"
            if is_text
            else "0",
        ]
        values = (_NUMERIC_TEXT,) if is_text else ()
        rows, known, distinct, numeric = self._aggregates(listed, [column], values)
        return TargetFacts(
            column,
            str(self._source.name),
            int(rows),
            int(known),
            int(distinct),
            int(numeric),
        )

    def features(self, columns: Sequence[Column]) -> list[ColumnFacts]:
        """Facts of columns, of the first rows of the table."""
        found: list[ColumnFacts] = []
        most = max(_FEWEST_ROWS, _MOST_VALUES // max(1, len(columns)))
        rows = min(_ROWS_OF_FEATURES, most)
        for first in range(0, len(columns), _COLUMNS_AT_ONCE):
            found += self._features(columns[first : first + _COLUMNS_AT_ONCE], rows)
        return found

    def _features(self, columns: Sequence[Column], most: int) -> Iterator[ColumnFacts]:
        listed = ["pg_catalog.count(*)"]
        for column in columns:
            value, known = f"s.{quote(column.name)}", can_be_encoded(column)
            listed += [
                f"pg_catalog.count({value})",
                f"pg_catalog.count(DISTINCT {value})" if known else "NULL",
                _span(value) if known and column.is_whole else "NULL",
            ]
        rows, *rest = self._aggregates(listed, columns, (), most)
        for place, column in enumerate(columns):
            known, distinct, span = rest[3 * place : 3 * place + 3]
            whole = None if span is None else int(span)
            yield ColumnFacts(column, int(rows), int(known), int(distinct or 0), whole)

    def cut(self, column: Column, target: Column, share: float) -> str:
        """The time from which rows are for validation, as text.

        Raises:
            WrongObjectType: the column has no order that is a time.
            InvalidData: all rows have the same time, or none has one.
        """
        if column.values not in (Values.TIME, Values.NUMBER):
            raise WrongObjectType(
                f"time_column: {column.name!r} is of type {column.type}; allowed: dates, times and numbers",
                hint="cast it in a view, and name that",
            )
        value = f"s.{quote(column.name)}"
        cut = f"pg_catalog.percentile_disc(%s) WITHIN GROUP (ORDER BY {value})"
        listed = [f"{cut}::text", f"{cut} OPERATOR(pg_catalog.>) pg_catalog.min({value})"]
        where = f" WHERE s.{quote(target.name)} IS NOT NULL"
        values = (1 - share, 1 - share)
        text, splits = self._aggregates(listed, [column, target], values, where=where)
        if not splits:
            raise InvalidData(
                f"time_column: nearly all rows have the same {column.name!r}, or none; allowed: a time by which "
                "rows can be split",
                hint="without time_column rows are split at random",
            )
        return str(text)

    def last_group(self, column: Column, target: Column, share: float, seed: int) -> str:
        """The greatest hash of a group that is for validation; ``group_hash`` is its SQL.

        Raises:
            WrongObjectType: nothing can be a group.
            InvalidData: there are fewer than two.
        """
        if not can_be_encoded(column):
            raise WrongObjectType(
                f"group_column: {column.name!r} is of type {column.type}; allowed: text, numbers and the like",
                hint="cast it in a view, and name that",
            )
        rows = read_as(self._session, self._source, [column.name, target.name], "s")
        hashed = group_hash(f"s.{quote(column.name)}", seed)
        ((last, groups),) = self._session.run(
            f"SELECT pg_catalog.max(CASE WHEN q.place = 1 OR q.until <= %s * q.total THEN q.h END), pg_catalog.count(*) "
            "FROM (SELECT g.h, pg_catalog.row_number() OVER (ORDER BY g.h) AS place, "
            "pg_catalog.sum(g.n) OVER (ORDER BY g.h) AS until, pg_catalog.sum(g.n) OVER () AS total "
            f"FROM (SELECT {hashed} AS h, pg_catalog.count(*) AS n FROM {rows} "
            f"WHERE s.{quote(target.name)} IS NOT NULL GROUP BY 1) g) q",
            (share,),
        )
        if groups < 2:
            raise InvalidData(
                f"group_column: {column.name!r} has {groups} groups; allowed: two or more",
                hint="without group_column rows are split at random",
            )
        return str(last)

    def _aggregates(
        self,
        listed: Sequence[str],
        columns: Sequence[Column],
        values: Sequence[Any],
        most: int | None = None,
        where: str = "",
    ) -> tuple[Any, ...]:
        limit = f" LIMIT {most}" if most is not None else ""
        rows = read_as(self._session, self._source, [one.name for one in columns], "s", limit)
        if most is not None and columns:
            names = ", ".join(f"s.{quote(one.name)}" for one in columns)
            rows = f"(SELECT {names} FROM {rows}{limit}) s"
        return self._session.run(f"SELECT {', '.join(_named(listed))} FROM {rows}{where}", values)[
            0
        ]


def _named(listed: Sequence[str]) -> list[str]:
    return [f"{one} AS a{place}" for place, one in enumerate(listed)]


def group_hash(value: str, seed: int) -> str:
    """SQL of a text that decides to which part of a split a group belongs."""
    return f"pg_catalog.md5(pg_catalog.concat({seed}, '/', {value})) COLLATE pg_catalog.\"C\""


def _span(value: str) -> str:
    """SQL of how many whole numbers there are from the least to the greatest."""
    low, high = (f"pg_catalog.{one}({value})::numeric" for one in ("min", "max"))
    return f"{high} - {low} + 1"


@contextmanager
def facts_of(session: Session, source: Relation) -> Iterator[TableFacts]:
    """A reader of facts of a table.

    Args:
        session: in no transaction.
        source: the table.
    """
    with transaction(session):
        yield TableFacts(session, source)
