"""Columns to be encoded and their methods: what a caller asks for, checked against the source."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from cerebro_db.configs.arguments import nearest
from cerebro_db.configs.encodings import (
    CATEGORICAL_METHODS,
    MAX_FEATURES,
    NUMERIC_METHODS,
    ColumnEncoding,
    Encoding,
    Kind,
    Method,
    Statistics,
)
from cerebro_db.configs.messages import shown
from cerebro_db.errors import NO_ROWS, InvalidArgument, InvalidData, WrongObjectType
from cerebro_db.postgres import encoding as sql
from cerebro_db.postgres.columns import ALL, listed_columns
from cerebro_db.postgres.control import Notify
from cerebro_db.postgres.names import QualifiedName, shown_identifier
from cerebro_db.postgres.relations import Column, Relation, column
from cerebro_db.postgres.sessions import Session

DEFAULT_CATEGORIES = 100
_NUMBERS = {20, 21, 23, 700, 701, 1700}
_UUID = 2950
_KINDS = {"B": Kind.BOOLEAN, "D": Kind.TIME, "T": Kind.TIME, "S": Kind.CATEGORY, "E": Kind.CATEGORY,
          "I": Kind.CATEGORY}  # fmt: skip


@dataclass(frozen=True)
class EncodingRequest:
    """The arguments of ``cerebro_pack_columns`` that say how, as given.

    Attributes:
        numbers: the method for numbers, dates and times.
        categories: the method for everything else, apart from booleans.
        max_categories: of a column.
        encodings: JSON, from names of columns to methods of their own.
        excluded: columns that ``*`` does not stand for.
    """

    numbers: str | None = Method.STANDARDIZE
    categories: str | None = Method.ONEHOT
    max_categories: int | None = DEFAULT_CATEGORIES
    encodings: str | None = None
    excluded: str | None = None

    def check(self) -> None:
        """Refuse what no table could make right."""
        _method("numbers", self.numbers, NUMERIC_METHODS)
        _method("categories", self.categories, CATEGORICAL_METHODS)
        if self.max_categories is None or not 1 <= self.max_categories <= MAX_FEATURES:
            got = "NULL" if self.max_categories is None else self.max_categories
            raise InvalidArgument(f"max_categories: got {got}; allowed: 1 to {MAX_FEATURES}")
        self.chosen()

    def chosen(self) -> Mapping[str, Any]:
        """The methods by the names of their columns, as written."""
        if self.encodings is None:
            return {}
        try:
            parsed = json.loads(self.encodings)
        except (ValueError, RecursionError):
            parsed = None
        if not isinstance(parsed, dict):
            raise InvalidArgument(
                f"encodings: got {shown(self.encodings)}; allowed: a JSON object such as "
                '{"age": "minmax", "city": "integer"}'
            )
        return parsed


def planned(
    source: Relation,
    listed: str | None,
    others: tuple[str, str | None],
    request: EncodingRequest,
) -> Encoding:
    """The columns and their methods; the numbers are still to be found in the rows.

    Args:
        source: the table.
        listed: columns, or ``*`` for all.
        others: the dependent variable, and the column of sample weights if there is one.
        request: how they are encoded.

    Raises:
        UndefinedColumn: a column does not exist.
        WrongObjectType: a column is of a type that has no encoding.
        InvalidArgument: a method does not fit the column, or the target is among the columns.
    """
    columns = _chosen(source, listed, others, request.excluded)
    own = {
        column(source, name, "encodings").name: method for name, method in request.chosen().items()
    }
    names = [one.name for one in columns]
    for name in own:
        if name not in names:
            raise InvalidArgument(
                f"encodings: got {name!r}, which is not among the columns that are packed",
                hint=nearest(name, names),
            )
    return Encoding(tuple(_planned(one, own.get(one.name), request) for one in columns))


def matched(source: Relation, listed: str | None, encoding: Encoding, role: str) -> Encoding:
    """A recorded encoding for another table, whose columns must be of the same kinds.

    Args:
        source: the table.
        listed: NULL, ``*`` or the recorded columns, in any order.
        encoding: as recorded.
        role: the name of the argument, for messages.
    """
    names = [one.name for one in encoding.columns]
    if listed is not None and listed.strip() != ALL:
        given = [one.name for one in listed_columns(source, listed, role)]
        if sorted(given) != sorted(names):
            raise InvalidArgument(
                f"{role}: got {shown(listed)}; allowed: NULL, '*' or the columns of the recorded "
                f"encoding: {', '.join(map(shown_identifier, names))}"
            )
    for known in encoding.columns:
        found = column(source, '"' + known.name.replace('"', '""') + '"', role)
        kind = _kind(found)
        if not known.method.is_categorical and kind is not known.kind:
            raise InvalidData(
                f"{role}: the column {found.name!r} is of type {found.type}; the recorded encoding "
                f"is of {known.type}",
                hint=f"cast it in a view: SELECT {shown_identifier(found.name)}::{known.type}",
            )
        if kind is None:
            raise _unsuitable(found, role)
    return encoding


def _chosen(
    source: Relation, listed: str | None, others: tuple[str, str | None], excluded: str | None
) -> Sequence[Column]:
    target, left_out = others[0], set(others)
    if excluded is not None:
        left_out |= {one.name for one in listed_columns(source, excluded, "excluded")}
    columns = listed_columns(source, listed, "independent_varname")
    if listed is not None and listed.strip() == ALL:
        columns = tuple(one for one in columns if one.name not in left_out)
    elif excluded is not None:
        raise InvalidArgument(
            f"excluded: got {shown(excluded)}; allowed: NULL where independent_varname is not '*'"
        )
    for one in columns:
        if one.name == target:
            raise InvalidArgument(
                f"independent_varname: got {target!r}, which is the dependent variable",
                hint="leave it out of independent_varname",
            )
    if not columns:
        raise InvalidArgument(
            f"independent_varname: got {shown(listed)}; no column of {source.name} is left"
        )
    return columns


def _planned(column: Column, own: object, request: EncodingRequest) -> ColumnEncoding:
    kind = _kind(column)
    if kind is None:
        raise _unsuitable(column, "independent_varname")
    if own is not None:
        role = f"encodings, {column.name!r} of type {column.type}"
        allowed = CATEGORICAL_METHODS if kind is Kind.CATEGORY else tuple(Method)
        method = _method(role, own, allowed)
    elif kind is Kind.CATEGORY:
        method = Method(str(request.categories))
    else:
        # False and true are 0 and 1 unless someone wants it otherwise.
        method = Method.NONE if kind is Kind.BOOLEAN else Method(str(request.numbers))
    return ColumnEncoding(column.name, column.type, kind, method)


def _kind(column: Column) -> Kind | None:
    if column.is_array:
        return None
    if column.type_oid in _NUMBERS:
        return Kind.NUMBER
    return Kind.CATEGORY if column.type_oid == _UUID else _KINDS.get(column.category)


def _unsuitable(column: Column, role: str) -> WrongObjectType:
    return WrongObjectType(
        f"{role}: the column {column.name!r} is of type {column.type}; allowed: numbers, boolean, "
        "text, enumerations, uuid, network addresses, dates and times",
        hint="exclude it, or cast it in a view; an array of numbers is packed with cerebro.cerebro_pack",
    )


def _method(role: str, value: object, allowed: Sequence[Method]) -> Method:
    names = [method.value for method in allowed]
    if not isinstance(value, str) or value not in names:
        got = "NULL" if value is None else shown(value)
        near = nearest(value[:80], names) if isinstance(value, str) else None
        raise InvalidArgument(
            f"{role}: got {got}; allowed: {', '.join(names)}",
            hint=near if near and near.startswith("Did") else None,
        )
    return Method(value)


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
        missing = rows - known
        column = replace(column, has_missing=missing > 0, statistics=Statistics(rows, missing))
        if column.method.is_categorical:
            categories, covered = self._categories(column, known)
            statistics = Statistics(rows, missing, known - covered)
            return replace(column, categories=categories, statistics=statistics)
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
        for each in columns:
            scale = found.get(each.name)
            yield each if scale is None else replace(each, scale=_divisor(scale))

    def _categories(self, column: ColumnEncoding, known: int) -> tuple[tuple[str, ...], int]:
        """The categories of a column, and how many rows have one of them."""
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
        return tuple(category for category, _ in rows), int(covered)


def _divisor(value: float) -> float:
    """A column that is the same everywhere is divided by one."""
    return value if value > 0 and math.isfinite(value) else 1.0
