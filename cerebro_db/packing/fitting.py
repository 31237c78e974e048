"""Survey of the columns of a training table: what all columns want to know in one statement, round by round."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any, NamedTuple

from cerebro_db.columns.categories import Integer, looked_up
from cerebro_db.columns.encoded import MAX_FEATURES, EncodedColumn, Encoding
from cerebro_db.columns.numbers import Plain, number
from cerebro_db.columns.surveys import Aggregates, Answer, Fitting, Group, Groups, Target
from cerebro_db.columns.values import FLOATS, Column
from cerebro_db.configs.messages import shortened
from cerebro_db.errors import NO_ROWS, InvalidArgument, InvalidData
from cerebro_db.postgres.calls.host import Notify
from cerebro_db.postgres.names import QualifiedName
from cerebro_db.postgres.sessions.errors import StatementFailed
from cerebro_db.postgres.sessions.session import Session
from cerebro_db.requests.packing import PackColumnsRequest

# The server returns at most 1664 values a row.
_VALUES_AT_ONCE = 1600
# Each keeps the values of a column, in up to work_mem of the server.
_SORTS_AT_ONCE = 40
_GROUPINGS_AT_ONCE = 64
_SHOWN = 20
# Of more classes the rarest ones count as one.
_MOST_CLASSES = 32
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


class _Wanted(NamedTuple):
    """What a column wants to know.

    Attributes:
        place: of the column.
        column: as it was planned.
        wants: what it wants.
    """

    place: int
    column: EncodedColumn
    wants: Aggregates | Groups


class Fitter:
    """Reads a table in a session whose snapshot is held.

    Args:
        session: the session.
        source: the table as the user knows it.
        table: the same, or its copy.
        read: the columns of it that are read.
        dependent: the first target.
        request: how many categories a column has at most, and how many of its values at least.
        notify: gets what a user should know about the columns.
    """

    def __init__(
        self,
        session: Session,
        source: QualifiedName,
        table: QualifiedName,
        read: Sequence[str],
        dependent: Column,
        request: PackColumnsRequest,
        notify: Notify,
    ) -> None:
        self._session, self._source, self._named = session, source, table
        self._dependent = dependent
        self.table, self.read = f"ONLY {table.sql} s", read
        self.max_categories, self.min_coverage = request.max_categories, request.min_coverage
        self.zone = session.caller.get("TimeZone", "UTC")
        self.notify = notify
        self.rows = self.columns = 0
        self._remarks: dict[str, list[str]] = {}

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
        planned = [one.with_collations(collations) for one in plan.columns]
        self.columns = len(planned)
        found = Encoding(self._in_rounds(planned))
        self._notify(found)
        if found.width > MAX_FEATURES:
            raise InvalidArgument(
                f"independent_varname: got columns that make {found.width} features; allowed: "
                f"{MAX_FEATURES}",
                hint="lower max_categories, or use the encoding 'integer' for some columns",
            )
        return found

    def remark(self, what: str, column: str) -> None:
        """Remember what a user should know about a column."""
        self._remarks.setdefault(what, []).append(column)

    def _notify(self, found: Encoding) -> None:
        chosen = [f"{one.name}: {one.written} ({one.why})" for one in found.columns if one.why]
        if chosen:
            self.notify(f"encodings that 'auto' has chosen: {_some(chosen, '; ')}")
        for what, remarked in self._remarks.items():
            names = [one.name for one in found.columns if one.name in remarked]
            columns, are = ("column", "is") if len(names) == 1 else ("columns", "are")
            self.notify(f"{columns} {_some([repr(name) for name in names], ', ')} {are} {what}")

    def _in_rounds(self, planned: Sequence[EncodedColumn]) -> tuple[EncodedColumn, ...]:
        """The fitted columns; in each round what they want to know is looked up together."""
        fittings: list[Fitting] = [one.fitting(self) for one in planned]
        found: dict[int, EncodedColumn] = {}
        answers: dict[int, Answer] = dict.fromkeys(range(len(planned)))
        while answers:
            wanted = []
            for place, answer in answers.items():
                try:
                    wants = fittings[place].send(answer)
                    wanted.append(_Wanted(place, planned[place], wants))
                except StopIteration as end:
                    found[place] = end.value
            answers = dict(sorted(self._answers(wanted)))
        return tuple(found[place] for place in range(len(planned)))

    def _answers(self, wanted: Sequence[_Wanted]) -> Iterator[tuple[int, Answer]]:
        aggregates = [one for one in wanted if isinstance(one.wants, Aggregates)]
        for part in _parts(aggregates):
            yield from self._aggregated(part)
        groups = [one for one in wanted if isinstance(one.wants, Groups)]
        for first in range(0, len(groups), _GROUPINGS_AT_ONCE):
            yield from self._grouped(groups[first : first + _GROUPINGS_AT_ONCE])

    # -- values over all rows ----------------------------------------------------------------------
    def _aggregated(self, wanted: Sequence[_Wanted]) -> Iterator[tuple[int, Answer]]:
        self.rows, *values = self._row(wanted)
        if not self.rows:
            raise InvalidData(
                f"source_table: {self._source} has no rows; allowed: at least one row", NO_ROWS
            )
        remaining = iter(values)
        for one in wanted:
            yield one.place, list(itertools.islice(remaining, len(_sql(one))))

    def _row(self, wanted: Sequence[_Wanted]) -> tuple[Any, ...]:
        """The number of rows, and the values of all aggregates.

        Raises:
            InvalidData: the values of a column are too large, or too small.
        """
        try:
            return self._attempted(wanted)
        except StatementFailed as failure:
            # Class 22: something about the data, which the server tells without the column's name.
            if not failure.sqlstate.startswith("22"):
                raise
            for one in wanted:
                try:
                    self._attempted([one])
                except StatementFailed as failed:
                    what = f"that cannot be computed with ({shortened(failed.message)})"
                    raise one.column.beyond(what) from None
            raise

    def _attempted(self, wanted: Sequence[_Wanted]) -> tuple[Any, ...]:
        listed = ", ".join(["pg_catalog.count(*)", *(sql for one in wanted for sql in _sql(one))])
        with self._session.attempt():
            return self.run(f"SELECT {listed} FROM {self.table}")[0]

    # -- the target in groups of rows --------------------------------------------------------------
    @property
    def has_target(self) -> bool:
        """True if the dependent variable is a number or a class."""
        return not self._dependent.is_array

    def target(self, column: str) -> Target:
        """The dependent variable.

        Raises:
            InvalidArgument: it is an array.
        """
        if not self.has_target:
            raise InvalidArgument(
                f"column {column!r}: got an encoding that depends on the dependent variable, which is of type "
                f"{self._dependent.type}; allowed: with a dependent variable that is a number or a class",
                hint="choose an encoding that does not depend on it, such as 'ple' or 'onehot'",
            )
        return self._target

    @cached_property
    def _target(self) -> Target:
        if self._is_number:
            value = Plain.planned(self._dependent).number("s")
            sql = (
                f"SELECT pg_catalog.avg({value}), pg_catalog.stddev_pop({value}) FROM {self.table}"
            )
            mean, deviation = self.run(sql)[0]
            return Target((), mean or 0.0, deviation or 1.0, (0.0,))
        rows = self.run(
            f"SELECT {self._class} AS class, pg_catalog.count(*) FROM {self.table} GROUP BY 1 "
            "ORDER BY 2 DESC, 1"
        )
        kept = sorted(rows[:_MOST_CLASSES], key=lambda row: (row[0] is None, row[0] or ""))
        counts = [count for _, count in kept]
        rest = sum(count for _, count in rows[_MOST_CLASSES:])
        counts += [rest] if rest else []
        priors = tuple(count / sum(counts) for count in counts)
        return Target(tuple(name for name, _ in kept), 0.0, 1.0, priors)

    @property
    def _is_number(self) -> bool:
        return self._dependent.type_oid in FLOATS

    @property
    def _number(self) -> str:
        """SQL of the number of a row; NULL where it is missing."""
        return Plain.planned(self._dependent).number("s")

    def _place_of_class(self, target: Target) -> str:
        """SQL of the place of the class of a row, from 1; 0 of one that is not listed."""
        listed = list(enumerate(target.classes, 1))
        nothing = next((place for place, name in listed if name is None), 0)
        codes = [(place, name) for place, name in listed if name is not None]
        return f"CASE WHEN {self._class} IS NULL THEN {nothing} ELSE {looked_up(self._class, codes)} END"

    @property
    def _class(self) -> str:
        """SQL of the class of a row, as a text; that of citext is without case."""
        return Integer.planned(self._dependent).category("s")

    def _grouped(self, wanted: Sequence[_Wanted]) -> Iterator[tuple[int, Answer]]:
        target = self.target(wanted[0].column.name)
        keys = ", ".join(one.wants.sql for one in wanted if isinstance(one.wants, Groups))
        value = self._number if self._is_number else self._place_of_class(target)
        found: list[dict[int, Group]] = [{} for _ in wanted]
        for place, key, *rest in self.run(_by_group(keys, value, self.table, target)):
            group = _group(target, *rest)
            known = found[place - 1].get(key)
            found[place - 1][key] = group if known is None else known + group
        for one, groups in zip(wanted, found, strict=True):
            yield one.place, groups


def _some(texts: Sequence[str], separator: str) -> str:
    """The first texts of a list, and how many more there are."""
    more = len(texts) - _SHOWN
    listed = [*texts[:_SHOWN], *([f"and {more} more"] if more > 0 else [])]
    return separator.join(listed)


def _by_group(keys: str, value: str, table: str, target: Target) -> str:
    """SQL of the target in groups of several kinds at once: place of the kind from 1, group, and what ``_group`` takes.

    Args:
        keys: expressions of the groups.
        value: of the target.
        table: with the alias ``s``.
    """
    each = "pg_catalog.count(*)"
    if target.is_class:
        each += ", k.value"
    else:
        scaled = f"(k.value - {number(target.mean)}) / {number(target.deviation)}"
        each += f", pg_catalog.sum({scaled})"
    by = ", 4" if target.is_class else ""
    known = "" if target.is_class else " AND k.value IS NOT NULL"
    return (
        f"SELECT k.place, k.key, {each} FROM (SELECT pg_catalog.unnest(q.keys) AS key, "
        "pg_catalog.generate_subscripts(q.keys, 1) AS place, q.value "
        f"FROM (SELECT ARRAY[{keys}]::integer[] AS keys, {value} AS value FROM {table} OFFSET 0) q) k "
        f"WHERE k.key IS NOT NULL{known} GROUP BY 1, 2{by} ORDER BY 1, 2{by}"
    )


def _group(target: Target, rows: int, value: Any) -> Group:
    if not target.is_class:
        return Group(rows, (value,))
    # A class that is not listed is one of the others, the last ones.
    place = value - 1 if value else len(target.classes)
    return Group(rows, tuple(float(rows) if n == place else 0.0 for n in range(len(target.priors))))


def _sql(one: _Wanted) -> Sequence[str]:
    return one.wants.sql if isinstance(one.wants, Aggregates) else ()


def _parts(wanted: Sequence[_Wanted]) -> Iterator[list[_Wanted]]:
    """The columns, as many at a time as the server returns values, and can sort."""
    part: list[_Wanted] = []
    values = sorts = 0
    for one in wanted:
        assert isinstance(one.wants, Aggregates)
        values, sorts = values + len(one.wants.sql), sorts + one.wants.sorts
        if part and (values > _VALUES_AT_ONCE or sorts > _SORTS_AT_ONCE):
            yield part
            part, values, sorts = [], len(one.wants.sql), one.wants.sorts
        part.append(one)
    if part:
        yield part
