"""Columns to be encoded and their methods: what a caller asks for, checked against the source."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

from cerebro_db.columns.categories import OneHot
from cerebro_db.columns.encoded import (
    MAX_FEATURES,
    METHODS,
    EncodedColumn,
    Encoding,
    methods,
    methods_of_argument,
)
from cerebro_db.columns.numbers import Plain, Standardize
from cerebro_db.columns.values import Column, Values
from cerebro_db.configs.arguments import nearest
from cerebro_db.configs.messages import shown
from cerebro_db.errors import InvalidArgument, InvalidData, WrongObjectType
from cerebro_db.postgres.names import shown_identifier
from cerebro_db.postgres.tables.relations import ALL, Relation, column, listed_columns

DEFAULT_CATEGORIES = 100
# Of the values of a column, the share that has a category.
DEFAULT_COVERAGE = 0.5


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

    numbers: str | None = Standardize.method
    categories: str | None = OneHot.method
    max_categories: int | None = DEFAULT_CATEGORIES
    encodings: str | None = None
    excluded: str | None = None
    min_coverage: float | None = DEFAULT_COVERAGE

    def check(self) -> None:
        """Refuse what no table could make right."""
        for argument in ("numbers", "categories"):
            _method(argument, getattr(self, argument), methods_of_argument(argument))
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
    names = encoding.names
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
        if found.values is None:
            raise _unsuitable(found, role)
        if not known.fits(found):
            raise InvalidData(
                f"{role}: the column {found.name!r} is of type {found.type}; the recorded encoding "
                f"is of {known.type}",
                hint=f"cast it in a view: SELECT {shown_identifier(found.name)}::{known.type}",
            )
        columns.append(known.at(found))
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


def _planned(column: Column, own: object, request: EncodingRequest) -> EncodedColumn:
    if column.values is None:
        raise _unsuitable(column, "independent_varname")
    if own is not None:
        role = f"encodings, {column.name!r} of type {column.type}"
        return _method(role, own, methods(column.values)).planned(column)
    if column.values is Values.BOOLEAN:  # 0 and 1 unless someone wants it otherwise
        return Plain.planned(column)
    is_category = column.values is Values.CATEGORY
    return METHODS[str(request.categories if is_category else request.numbers)].planned(column)


def _unsuitable(column: Column, role: str) -> WrongObjectType:
    return WrongObjectType(
        f"{role}: the column {column.name!r} is of type {column.type}; allowed: numbers, boolean, "
        "text, enumerations, uuid, network addresses, dates and times",
        hint="exclude it, or cast it in a view; an array of numbers is packed with cerebro.cerebro_pack",
    )


def _method(role: str, value: object, allowed: Sequence[str]) -> type[EncodedColumn]:
    if not isinstance(value, str) or value not in allowed:
        got = "NULL" if value is None else shown(value)
        near = nearest(value[:80], allowed) if isinstance(value, str) else None
        raise InvalidArgument(
            f"{role}: got {got}; allowed: {', '.join(allowed)}",
            hint=near if near and near.startswith("Did") else None,
        )
    return METHODS[value]
