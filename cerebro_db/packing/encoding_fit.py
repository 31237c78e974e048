"""The numbers of an encoding, computed by the server from the rows of a training table."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from cerebro_db.configs.encodings import MAX_FEATURES, ColumnEncoding, Encoding, Method
from cerebro_db.errors import NO_ROWS, InvalidArgument, InvalidData
from cerebro_db.postgres import encoding as sql
from cerebro_db.postgres.control import Notify
from cerebro_db.postgres.names import QualifiedName
from cerebro_db.postgres.sessions import Session

LONGEST_CATEGORY = 1000
# The server returns at most 1664 values a row, and there are up to four of a column.
_COLUMNS_AT_ONCE = 400


class Fitter:
    """Reads a table in a session whose snapshot is held.

    Args:
        session: the session.
        source: the table as the user knows it.
        table: the same, or its copy.
        max_categories: of a column; the most frequent ones.
        notify: is told which columns have more categories.
    """

    def __init__(
        self,
        session: Session,
        source: QualifiedName,
        table: QualifiedName,
        max_categories: int,
        notify: Notify,
    ) -> None:
        self._session, self._source, self._table = session, source, table
        self._max, self._notify = max_categories, notify

    def fitted(self, plan: Encoding) -> Encoding:
        """The plan with its numbers and categories.

        Raises:
            InvalidData: there are no rows, or a column has no value.
            InvalidArgument: it would be too many features.
        """
        columns = []
        for first in range(0, len(plan.columns), _COLUMNS_AT_ONCE):
            columns += self._all_measured(plan.columns[first : first + _COLUMNS_AT_ONCE])
        found = Encoding(tuple(self._scaled(columns)))
        if found.width > MAX_FEATURES:
            raise InvalidArgument(
                f"independent_varname: got columns that make {found.width} features; allowed: "
                f"{MAX_FEATURES}",
                hint="lower max_categories, or use the encoding 'integer' for some columns",
            )
        return found

    def _all_measured(self, plan: Sequence[ColumnEncoding]) -> list[ColumnEncoding]:
        row = self._session.run(sql.numbers(self._table, plan))[0]
        rows, facts = row[0], iter(row[1:])
        if not rows:
            raise InvalidData(
                f"source_table: {self._source} has no rows; allowed: at least one row", NO_ROWS
            )
        return [self._measured(column, rows, facts) for column in plan]

    def _measured(self, column: ColumnEncoding, rows: int, facts: Iterator[Any]) -> ColumnEncoding:
        known = next(facts)
        if not known:
            raise InvalidData(
                f"column {column.name!r}: got no value in {rows} rows; allowed: at least one value",
                hint="leave the column out",
            )
        column = replace(column, has_missing=known < rows)
        if column.method.is_categorical:
            return replace(column, categories=self._categories(column, known))
        mean, low, high = next(facts), next(facts), next(facts)
        if column.method is Method.STANDARDIZE:
            return replace(column, center=mean, fill=mean)
        if column.method is Method.MINMAX:
            return replace(column, center=low, scale=_divisor(high - low), fill=mean)
        return replace(column, fill=mean)

    def _scaled(self, columns: list[ColumnEncoding]) -> Iterator[ColumnEncoding]:
        """With the standard deviations, which need the means."""
        wanted = [column for column in columns if column.method is Method.STANDARDIZE]
        found: dict[str, Any] = {}
        if wanted:
            row = self._session.run(sql.deviations(self._table, wanted))[0]
            found = {column.name: value for column, value in zip(wanted, row, strict=True)}
        for column in columns:
            scale = found.get(column.name)
            yield column if scale is None else replace(column, scale=_divisor(scale))

    def _categories(self, column: ColumnEncoding, known: int) -> tuple[str, ...]:
        statement = sql.categories(self._table, column)
        rows = self._session.run(statement, (self._max,))
        for category, _ in rows:
            if len(category) > LONGEST_CATEGORY:
                raise InvalidData(
                    f"column {column.name!r}: got a text of {len(category)} characters; allowed "
                    f"for a category: {LONGEST_CATEGORY}",
                    hint="leave the column out",
                )
        covered = sum(count for _, count in rows)
        if covered < known:
            self._notify(
                f"column {column.name!r} has more than {self._max} categories; the most frequent "
                f"ones, {100 * covered // known} % of the rows, have a code of their own"
            )
        return tuple(category for category, _ in rows)


def _divisor(value: float) -> float:
    """A column that is the same everywhere is divided by one."""
    return value if value > 0 and math.isfinite(value) else 1.0
