"""Columns to be encoded and their methods: what a caller asks for, checked against the source."""

from __future__ import annotations

import functools
import json
import math
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from cerebro_db.configs.arguments import nearest
from cerebro_db.configs.encodings import (
    CATEGORICAL_METHODS,
    MAX_FEATURES,
    NUMERIC_METHODS,
    ColumnEncoding,
    Comparison,
    Encoding,
    Kind,
    Method,
    Statistics,
)
from cerebro_db.configs.messages import shortened, shown
from cerebro_db.errors import NO_ROWS, InvalidArgument, InvalidData, WrongObjectType
from cerebro_db.postgres import encoding as sql
from cerebro_db.postgres.columns import ALL, listed_columns
from cerebro_db.postgres.control import Notify
from cerebro_db.postgres.dialects.postgresql.packing import FLOAT32_LIMIT
from cerebro_db.postgres.names import QualifiedName, shown_identifier
from cerebro_db.postgres.relations import Column, Relation, column
from cerebro_db.postgres.sessions import Session, StatementFailed

DEFAULT_CATEGORIES = 100
# Of the values of a column, the share that has a category.
DEFAULT_COVERAGE = 0.5
_NUMBERS = {20, 21, 23, 700, 701, 1700}
_UUID, _BOOLEAN = 2950, 16
_CITEXT = re.compile(r'(?:.*\.)?"?citext"?')
_FORMS = {
    16: "boolean", 20: "integer", 21: "integer", 23: "integer", 700: "real", 701: "double precision",
    1700: "numeric", 1082: "date", 1114: "timestamp", 1184: "timestamptz", 1083: "time", 1266: "timetz",
    1186: "interval", 2950: "uuid", 869: "inet", 650: "inet", 829: "macaddr", 774: "macaddr",
}  # fmt: skip
_COMPARISONS = {
    "boolean": Comparison.BOOLEAN,
    "integer": Comparison.NUMBER,
    "real": Comparison.NUMBER,
    "double precision": Comparison.NUMBER,
    "numeric": Comparison.NUMBER,
    "date": Comparison.DATE,
    "timestamp": Comparison.DATE,
    "timestamptz": Comparison.INSTANT,
    "time": Comparison.TIME,
    "timetz": Comparison.ZONED_TIME,
    "interval": Comparison.INTERVAL,
    "uuid": Comparison.UUID,
    "inet": Comparison.NETWORK,
    "macaddr": Comparison.ADDRESS,
    "text": Comparison.TEXT,
}
_TEXTS = {Comparison.TEXT, Comparison.FOLDED, Comparison.COLLATED}
# What the number of days of a date or time is counted from.
_LENGTHS = {
    "date": "1970", "timestamp": "1970", "timestamptz": "1970", "time": "midnight", "timetz": "midnight",
    "interval": "itself",
}  # fmt: skip
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
        min_coverage: the least share of values whose category is among the most frequent ones.
    """

    numbers: str | None = Method.STANDARDIZE
    categories: str | None = Method.ONEHOT
    max_categories: int | None = DEFAULT_CATEGORIES
    encodings: str | None = None
    excluded: str | None = None
    min_coverage: float | None = DEFAULT_COVERAGE

    def check(self) -> None:
        """Refuse what no table could make right."""
        _method("numbers", self.numbers, NUMERIC_METHODS)
        _method("categories", self.categories, CATEGORICAL_METHODS)
        if self.max_categories is None or not 1 <= self.max_categories <= MAX_FEATURES:
            got = "NULL" if self.max_categories is None else self.max_categories
            raise InvalidArgument(f"max_categories: got {got}; allowed: 1 to {MAX_FEATURES}")
        if self.min_coverage is None or not 0 <= self.min_coverage <= 1:
            got = "NULL" if self.min_coverage is None else repr(self.min_coverage)
            raise InvalidArgument(f"min_coverage: got {got}; allowed: 0 to 1")
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
    columns = []
    for known in encoding.columns:
        found = column(source, '"' + known.name.replace('"', '""') + '"', role)
        if _kind(found) is None:
            raise _unsuitable(found, role)
        if not _fits(found, known):
            raise InvalidData(
                f"{role}: the column {found.name!r} is of type {found.type}; the recorded encoding "
                f"is of {known.type}",
                hint=f"cast it in a view: SELECT {shown_identifier(found.name)}::{known.type}",
            )
        columns.append(replace(known, form=_form(found)))
    return replace(encoding, columns=tuple(columns))


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
    comparison = _comparison(column) if method.is_categorical else Comparison.WRITTEN
    return ColumnEncoding(
        column.name, column.type, kind, method, comparison=comparison, form=_form(column)
    )


def _form(column: Column) -> str:
    """The type of values, as far as it decides how they are compared."""
    return _FORMS.get(column.type_oid, "text")


def _comparison(column: Column) -> Comparison:
    if column.category == "S" and _CITEXT.fullmatch(column.base_type):
        return Comparison.FOLDED
    return _COMPARISONS[_form(column)]


def _fits(found: Column, known: ColumnEncoding) -> bool:
    """Whether values of a column become those of the recorded type, and lose nothing."""
    if known.method.is_categorical and known.comparison is not Comparison.WRITTEN:
        if found.type_oid == _BOOLEAN:
            return known.comparison in (Comparison.BOOLEAN, Comparison.NUMBER)
        usual = _COMPARISONS[_form(found)]
        return (_TEXTS if usual in _TEXTS else {usual}) >= {known.comparison}
    if _kind(found) is not known.kind:
        return False
    if known.method.is_categorical:  # texts as the server writes them are those of one type
        return known.kind in (Kind.CATEGORY, Kind.BOOLEAN) or found.type == known.type
    if known.kind is not Kind.TIME:
        return True
    recorded = _LENGTHS.get(known.type.partition("(")[0].partition(" ")[0])
    return recorded in (None, _LENGTHS[_form(found)])


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
# Up to here float32 holds all whole numbers.
MOST_WHOLE = 2**24
# Of two: squares, and squares of these, are numbers of double precision.
_PLAIN_EXPONENT = 200
# In units of the last place of a value: values so close differ by the rounding of double precision.
_LAST_DIGITS = 2.0
# Relative to the spread of values: less does not show in float32.
_NEGLIGIBLE = 1e-9
# The server returns at most 1664 values a row, and there are up to four of a column.
_COLUMNS_AT_ONCE = 400


class Fitter:
    """Reads a table in a session whose snapshot is held.

    Args:
        session: the session.
        source: the table as the user knows it.
        table: the same, or its copy.
        max_categories: of a column; the most frequent ones.
        min_coverage: the least share of values that these have.
        notify: is told which columns have more categories.
        whole: names of the columns that hold whole numbers by their type.
    """

    def __init__(
        self,
        session: Session,
        source: QualifiedName,
        table: QualifiedName,
        max_categories: int,
        min_coverage: float,
        notify: Notify,
        whole: Collection[str] = (),
    ) -> None:
        self._session, self._source, self._table = session, source, table
        self._max, self._coverage = max_categories, min_coverage
        self._notify, self._whole = notify, whole
        # From the minimum to the maximum, of columns of numbers that are not the same everywhere.
        self._spans: dict[str, float] = {}

    def fitted(self, plan: Encoding) -> Encoding:
        """The plan with its numbers and categories.

        Raises:
            InvalidData: there are no rows, or a column has no value.
            InvalidArgument: it would be too many features.
        """
        plan = self._collated(plan)
        columns = []
        for first in range(0, len(plan.columns), _COLUMNS_AT_ONCE):
            columns += self._all_measured(plan.columns[first : first + _COLUMNS_AT_ONCE])
        found = Encoding(tuple(self._corrected(columns)))
        if found.width > MAX_FEATURES:
            raise InvalidArgument(
                f"independent_varname: got columns that make {found.width} features; allowed: "
                f"{MAX_FEATURES}",
                hint="lower max_categories, or use the encoding 'integer' for some columns",
            )
        return found

    def _collated(self, plan: Encoding) -> Encoding:
        """With the collations by which texts are equal that are not the same."""
        found = {
            name: (schema, collation)
            for name, schema, collation in self._session.run(sql.COLLATIONS, (self._table.text,))
        }
        columns = (
            replace(one, comparison=Comparison.COLLATED, collation=found[one.name])
            if one.comparison is Comparison.TEXT and one.name in found
            else one
            for one in plan.columns
        )
        return replace(plan, columns=tuple(columns))

    def _all_measured(self, plan: Sequence[ColumnEncoding]) -> list[ColumnEncoding]:
        row = self._row(sql.numbers, plan)
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
        if column.method is Method.NONE:
            self._check_range(column, low, high)
        if low == high or (column.name not in self._whole and is_constant(low, high)):
            return replace(column, center=low if column.method.is_scaled else 0.0, fill=low)
        if not math.isfinite(high - low):
            raise _beyond(column, f"from {low!r} to {high!r}")
        self._spans[column.name] = high - low
        if column.method is Method.STANDARDIZE:
            return replace(column, center=mean, fill=mean)
        if column.method is Method.MINMAX:
            return replace(column, center=low, scale=high - low, fill=mean)
        return replace(column, fill=mean)

    def _check_range(self, column: ColumnEncoding, low: float, high: float) -> None:
        """Refuse what is to be packed as it is and cannot be."""
        for value in (low, high):
            if abs(value) >= float(FLOAT32_LIMIT):
                raise InvalidData(
                    f"column {column.name!r}: got {value!r}; allowed with the encoding 'none': finite "
                    "float32 numbers, up to 3.4e38",
                    hint="'standardize' and 'minmax' take larger ones, and a view can leave rows out",
                )
        if column.name not in self._whole or max(abs(low), abs(high)) <= MOST_WHOLE:
            return
        for (value,) in self._session.run(sql.unheld(self._table, column)):
            raise InvalidData(
                f"column {column.name!r}: got the whole number {value}, which float32 does not hold; "
                f"allowed with the encoding 'none': whole numbers that it holds, as all up to {MOST_WHOLE}",
                hint="'standardize' and 'minmax' scale them before; numbers that only name rows are "
                "left out by excluded",
            )

    def _corrected(self, columns: list[ColumnEncoding]) -> Iterator[ColumnEncoding]:
        """With the standard deviations, and better means: both need the means."""
        varying = [one for one in columns if one.name in self._spans]
        found = dict[str, tuple[float, float]]()
        for first in range(0, len(varying), _COLUMNS_AT_ONCE):
            part = varying[first : first + _COLUMNS_AT_ONCE]
            units = {one.name: _unit(self._spans[one.name]) for one in part}
            values = iter(self._row(functools.partial(sql.deviations, units=units), part))
            for one in part:
                shift, deviation = next(values), next(values)
                unit = units[one.name]
                found[one.name] = shift * unit, (deviation or 0.0) * unit
        for each in columns:
            if each.name not in found:
                yield each
            elif each.method is Method.STANDARDIZE:
                yield _standardized(each, *found[each.name])
            else:
                yield _with_mean(each, found[each.name][0], self._spans[each.name])

    def _row(
        self,
        statement: Callable[[QualifiedName, Sequence[ColumnEncoding]], str],
        columns: Sequence[ColumnEncoding],
    ) -> tuple[Any, ...]:
        """The row of a statement about columns.

        Raises:
            InvalidData: the values of a column are too large, or too small.
        """
        try:
            with self._session.attempt():
                return self._session.run(statement(self._table, columns))[0]
        except StatementFailed as failure:
            # Class 22: something about the data, which the server tells without the column's name.
            if failure.sqlstate.startswith("22"):
                self._find_failing(statement, columns)
            raise

    def _find_failing(
        self,
        statement: Callable[[QualifiedName, Sequence[ColumnEncoding]], str],
        columns: Sequence[ColumnEncoding],
    ) -> None:
        """Raise the error that names the column of which a statement fails."""
        for one in columns:
            try:
                with self._session.attempt():
                    self._session.run(statement(self._table, [one]))
            except StatementFailed as failure:
                what = f"that cannot be computed with ({shortened(failure.message)})"
                raise _beyond(one, what) from None

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
        covered = int(sum(count for _, count in rows))
        if covered < self._coverage * known:
            raise self._uncovered(column, covered, known)
        if covered < known:
            self._notify(
                f"column {column.name!r} has more than {self._max} categories; the most frequent "
                f"ones, {100 * covered // known} % of the rows, have a code of their own"
            )
        return tuple(category for category, _ in rows), covered

    def _uncovered(self, column: ColumnEncoding, covered: int, known: int) -> InvalidData:
        """The error of a column most of whose values would have no category."""
        total, enough = self._session.run(
            sql.enough_categories(self._table, column), (self._coverage * known,)
        )[0]
        others = f"max_categories := {enough} covers enough" if enough <= MAX_FEATURES else None
        ways = [
            "exclude the column if it names rows",
            "group rare values in a view",
            others,
            f"min_coverage := {math.floor(100 * covered / known) / 100} takes them as they are",
        ]
        return InvalidData(
            f"column {column.name!r}: got {total} categories, of which the {self._max} most frequent ones "
            f"cover {100 * covered / known:.3g} % of the values; allowed: at least "
            f"{100 * self._coverage:.3g} %",
            hint="; ".join(way for way in ways if way),
        )


def _unit(span: float) -> float:
    """A power of two in which distances are told, so that squares neither overflow nor vanish."""
    exponent = math.frexp(span)[1]
    return math.ldexp(1.0, exponent) if abs(exponent) > _PLAIN_EXPONENT else 1.0


def is_constant(low: float, high: float) -> bool:
    """True if values are the same everywhere, but for the last digit of double precision."""
    return high / 2 - low / 2 <= _LAST_DIGITS / 2 * math.ulp(max(abs(low), abs(high)))


def _standardized(column: ColumnEncoding, shift: float, deviation: float) -> ColumnEncoding:
    """A column with its standard deviation.

    Args:
        column: its center is the server's mean.
        shift: average distance from that.
        deviation: root of the average square of the distance.
    """
    center = column.center
    column = _with_mean(column, shift, deviation)
    if column.fill != center:
        deviation = math.sqrt(max(deviation * deviation - shift * shift, 0.0))
        column = replace(column, center=column.fill)
    return replace(column, scale=deviation or 1.0)


def _with_mean(column: ColumnEncoding, shift: float, spread: float) -> ColumnEncoding:
    """A column whose mean is corrected where that shows.

    The server's mean is a sum, whose error grows with the number of rows.

    Args:
        column: ``fill`` is the server's mean.
        shift: average distance from that.
        spread: of the values.
    """
    return (
        column if abs(shift) <= _NEGLIGIBLE * spread else replace(column, fill=column.fill + shift)
    )


def _beyond(column: ColumnEncoding, what: str) -> InvalidData:
    return InvalidData(
        f"column {column.name!r}: got values {what}; allowed with the encoding "
        f"{column.method.value!r}: numbers whose mean and scale are numbers of double precision, "
        "as up to about 1e140",
        hint="leave such rows out in a view, or multiply the column by a constant there",
    )
