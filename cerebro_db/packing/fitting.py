"""Survey of the columns of a training table: one statement for many columns, a second one where these need it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

from msgspec.structs import replace

from cerebro_db.columns.encoded import MAX_FEATURES, EncodedColumn, Encoding, Statistics
from cerebro_db.configs.messages import shortened
from cerebro_db.errors import NO_ROWS, InvalidArgument, InvalidData
from cerebro_db.postgres.calls.host import Notify
from cerebro_db.postgres.names import QualifiedName
from cerebro_db.postgres.sessions.errors import StatementFailed
from cerebro_db.postgres.sessions.session import Session
from cerebro_db.requests.packing import PackColumnsRequest

# The server returns at most 1664 values a row.
_VALUES_AT_ONCE = 1600
# The columns of a table whose collation takes texts for equal that are not the same. Older servers have no such
# collations. Parameter: the table's name.
_COLLATIONS = """
SELECT a.attname, n.nspname, l.collname
  FROM pg_catalog.pg_attribute a
  JOIN pg_catalog.pg_collation l ON l.oid = a.attcollation
  JOIN pg_catalog.pg_namespace n ON n.oid = l.collnamespace
 WHERE a.attrelid = %s::pg_catalog.regclass AND a.attnum > 0 AND NOT a.attisdropped
   AND pg_catalog.row_to_json(l) ->> 'collisdeterministic' = 'false'
"""
# A column, and the aggregates that it asks for.
_Aggregates = tuple[EncodedColumn, list[str]]


class Fitter:
    """Reads a table in a session whose snapshot is held.

    Args:
        session: the session.
        source: the table as the user knows it.
        table: the same, or its copy.
        target: SQL over its alias ``s`` of the first target.
        request: how many categories a column has at most, and how many of its values at least.
        notify: gets the columns that have more categories.
    """

    def __init__(
        self,
        session: Session,
        source: QualifiedName,
        table: QualifiedName,
        target: str,
        request: PackColumnsRequest,
        notify: Notify,
    ) -> None:
        self._session, self._source, self._named = session, source, table
        self.table, self.target = f"ONLY {table.sql} s", target
        self.max_categories, self.min_coverage = request.max_categories, request.min_coverage
        self.notify = notify

    def run(self, sql: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Rows of a statement about the training rows."""
        return self._session.run(sql, values)

    def fitted(self, plan: Encoding) -> Encoding:
        """The plan with its numbers and categories.

        Raises:
            InvalidData: there are no rows, or a column has no value.
            InvalidArgument: it would be too many features.
        """
        collations = {
            name: tuple(rest) for name, *rest in self.run(_COLLATIONS, (self._named.text,))
        }
        planned = [
            one.collated(collations[one.name]) if one.name in collations else one
            for one in plan.columns
        ]
        measured = list(self._measured(planned))
        refining = [(one, aggregates) for one in measured if (aggregates := one.refinements())]
        refined = {one.name: one.refined(values) for one, _, values in self._values(refining)}
        found = Encoding(tuple(refined.get(one.name, one) for one in measured))
        if found.width > MAX_FEATURES:
            raise InvalidArgument(
                f"independent_varname: got columns that make {found.width} features; allowed: "
                f"{MAX_FEATURES}",
                hint="lower max_categories, or use the encoding 'integer' for some columns",
            )
        return found

    def _measured(self, planned: Sequence[EncodedColumn]) -> Iterator[EncodedColumn]:
        facts = [(one, one.facts()) for one in planned]
        for column, rows, (known, *values) in self._values(facts):
            if not rows:
                raise InvalidData(
                    f"source_table: {self._source} has no rows; allowed: at least one row", NO_ROWS
                )
            if not known:
                raise InvalidData(
                    f"column {column.name!r}: got no value in {rows} rows; allowed: at least one value",
                    hint="leave the column out",
                )
            missing = rows - known
            statistics = Statistics(rows, missing)
            counted = replace(column, has_missing=missing > 0, statistics=statistics)
            yield counted.measured(self, known, values)

    def _values(
        self, columns: Sequence[_Aggregates]
    ) -> Iterator[tuple[EncodedColumn, int, Sequence[Any]]]:
        """Each column, the rows of the table, and the values of the column's aggregates."""
        for part in _parts(columns):
            rows, *values = self._row(part)
            remaining = iter(values)
            for column, aggregates in part:
                yield column, rows, list(itertools.islice(remaining, len(aggregates)))

    def _row(self, columns: Sequence[_Aggregates]) -> tuple[Any, ...]:
        """The number of rows, and the values of all aggregates.

        Raises:
            InvalidData: the values of a column are too large, or too small.
        """
        try:
            return self._attempted(columns)
        except StatementFailed as failure:
            # Class 22: something about the data, which the server tells without the column's name.
            if not failure.sqlstate.startswith("22"):
                raise
            for one in columns:
                try:
                    self._attempted([one])
                except StatementFailed as failed:
                    what = f"that cannot be computed with ({shortened(failed.message)})"
                    raise one[0].beyond(what) from None
            raise

    def _attempted(self, columns: Sequence[_Aggregates]) -> tuple[Any, ...]:
        listed = ", ".join(["pg_catalog.count(*)", *(one for _, each in columns for one in each)])
        with self._session.attempt():
            return self.run(f"SELECT {listed} FROM {self.table}")[0]


def _parts(columns: Sequence[_Aggregates]) -> Iterator[list[_Aggregates]]:
    """The columns, as many at a time as the server returns values."""
    part: list[_Aggregates] = []
    for one in columns:
        if part and sum(len(each) for _, each in [*part, one]) > _VALUES_AT_ONCE:
            yield part
            part = []
        part.append(one)
    if part:
        yield part
