"""Kinds of columns whose values are categories: one text for all values that are equal, whatever their type writes."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import Any, ClassVar, Self

from msgspec.structs import replace

from cerebro_db.columns.encoded import (
    INDICATOR,
    MAX_FEATURES,
    EncodedColumn,
    described_row,
    is_text,
    registered,
)
from cerebro_db.columns.numbers import LARGEST
from cerebro_db.columns.options import Option
from cerebro_db.columns.surveys import Survey
from cerebro_db.columns.values import Column, Values
from cerebro_db.errors import InvalidData
from cerebro_db.postgres.names import literal, quote

LONGEST_CATEGORY = 1000
# More categories are looked up; the expression of each is then a part of no other.
_MOST_HALVED = 64

# Up to here double precision holds all whole numbers.
_WHOLE = "9007199254740992"
_FLOATS = ("real", "double precision")
_NOT_FINITE = "'NaN', 'Infinity', '-Infinity'"
_DATED = ("date", "timestamp", "timestamptz")
_WHOLE_NUMBER = re.compile(r"-?\d{1,18}")
_ANY_NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?")
_DAY = re.compile(r"\d{4,6}-\d\d-\d\d(?: BC)?")
_TIME = re.compile(r"\d{4,6}-\d\d-\d\d(?: \d\d:\d\d:\d\d(?:\.\d+)?)?(?:\+00)?(?: BC)?")
# Of more digits may be a number that is none of double precision.
_MOST_DIGITS = 300


class Comparison(StrEnum):
    """Equality of the categories of a column: what is compared."""

    WRITTEN = ""  # texts as the server writes them, in encodings of 0.1
    TEXT = "text"
    FOLDED = "citext"
    COLLATED = "collation"
    NUMBER = "number"
    BOOLEAN = "boolean"
    DATE = "date"
    INSTANT = "timestamptz"
    TIME = "time"
    ZONED_TIME = "timetz"
    INTERVAL = "interval"
    UUID = "uuid"
    NETWORK = "inet"
    ADDRESS = "macaddr"


_CITEXT = re.compile(r'(?:.*\.)?"?citext"?')
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
# How the categories of a column look that can be read as its type, and that type.
_WRITTEN = {
    (Comparison.NUMBER, "integer"): (_WHOLE_NUMBER, "bigint"),
    (Comparison.NUMBER, "double precision"): (_ANY_NUMBER, "double precision"),
    (Comparison.NUMBER, "numeric"): (_ANY_NUMBER, "numeric"),
    (Comparison.DATE, "date"): (_DAY, "date"),
    (Comparison.DATE, "timestamp"): (_TIME, "timestamp"),
    (Comparison.INSTANT, "timestamptz"): (_TIME, "timestamptz"),
}


class Categorical(EncodedColumn, frozen=True, omit_defaults=False, eq=False):
    """A column of categories.

    Attributes:
        categories: sorted; the code of the first one is 1.
        comparison: how values are compared with them.
        collation: schema and name of the one by which they are compared, where that is not deterministic.
    """

    argument: ClassVar[str] = "categories"

    categories: tuple[str, ...] = ()
    comparison: Comparison = Comparison.WRITTEN
    collation: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        is_collated = self.comparison is Comparison.COLLATED
        texts = (*self.categories, *self.collation)
        if len(self.collation) != 2 * is_collated or not all(map(is_text, texts)):
            raise ValueError(self.categories)

    @classmethod
    def planned(cls, column: Column) -> Self:
        """The encoding whose categories are still to be found."""
        return replace(super().planned(column), comparison=_comparison(column))

    def collated(self, collation: tuple[str, ...]) -> Self:
        """The encoding whose texts are equal as that collation says."""
        if self.comparison is not Comparison.TEXT:
            return self
        return replace(self, comparison=Comparison.COLLATED, collation=collation)

    def fits(self, column: Column) -> bool:
        """True if values are compared in the same way; texts as the server writes them are those of one type."""
        if self.comparison is Comparison.WRITTEN:
            alike = self.kind in (Values.CATEGORY, Values.BOOLEAN) or column.type == self.type
            return super().fits(column) and alike
        if column.form == "boolean":
            return self.comparison in (Comparison.BOOLEAN, Comparison.NUMBER)
        usual = _COMPARISONS[column.form]
        return (_TEXTS if usual in _TEXTS else {usual}) >= {self.comparison}

    @property
    def is_fitted(self) -> bool:
        """True once there are categories."""
        return bool(self.categories)

    @property
    def categories_listed(self) -> int:
        """The number of categories."""
        return len(self.categories)

    @property
    def meaning(self) -> object:
        """The meaning of the features: those of the kind, and the categories."""
        return (super().meaning, self.categories)

    # -- SQL ---------------------------------------------------------------------------------------
    def is_present(self, alias: str) -> str:
        """SQL condition: there is a value. NaN and what is infinite are missing."""
        name = self._sql(alias)
        if self.comparison is Comparison.WRITTEN:
            return f"{name} IS NOT NULL"
        if self.form in _FLOATS:
            return f"pg_catalog.abs({name}::double precision) <= {LARGEST}"
        if self.form == "numeric":
            return f"{name}::text NOT IN ({_NOT_FINITE})"
        if self.form in (*_DATED, "interval"):
            return f"pg_catalog.isfinite({name})"
        return f"{name} IS NOT NULL"

    def missing(self, alias: str) -> str:
        """SQL condition: there is no value."""
        return f"({self.is_present(alias)}) IS NOT TRUE"

    def unseen(self, alias: str) -> str:
        """SQL condition: the value is none of the categories."""
        return f"{self.is_present(alias)} AND {self.code(alias)} = 0"

    def category(self, alias: str) -> str:
        """SQL of the text by which the value of a row is compared; NULL where it is missing."""
        text = _text(self.comparison, self.form, self._sql(alias))
        if self.comparison is Comparison.COLLATED:
            return f"{text} COLLATE {'.'.join(map(quote, self.collation))}"
        if self.form in (*_FLOATS, "numeric", *_DATED, "interval") and (
            self.comparison is not Comparison.WRITTEN
        ):
            text = f"CASE WHEN {self.is_present(alias)} THEN {text} END"
        # Byte by byte, whatever the column's collation says.
        return f'({text}) COLLATE "C"' if text.startswith("CASE") else f'{text} COLLATE "C"'

    def is_category(self, alias: str, value: str) -> str:
        """SQL condition: the value of a row is this category.

        Where the category can be written in the type of the column that is compared with, at no cost for each row.
        """
        wanted = _WRITTEN.get((self.comparison, self.form))
        if wanted is not None and len(value) <= _MOST_DIGITS and wanted[0].fullmatch(value):
            return f"{self._sql(alias)} = {literal(value)}::{wanted[1]}"
        return f"{self.category(alias)} = {literal(value)}"

    def code(self, alias: str) -> str:
        """SQL of the number of the category of a row, from 1; 0 where it is none of them, or missing."""
        text = self.category(alias)
        listed = list(enumerate(self.categories, 1))
        if not listed:
            return "0"
        if self.comparison is not Comparison.COLLATED:
            return _halved(text, listed) if len(listed) <= _MOST_HALVED else looked_up(text, listed)
        # The order of a collation of another library would find other halves.
        each = " ".join(f"WHEN {text} = {literal(value)} THEN {number}" for number, value in listed)
        return f"CASE {each} ELSE 0 END"

    def place(self, alias: str) -> str:
        """SQL of the place of the category of a row: 0 of a missing value, 1 of one that is none of them, then those
        that are listed."""
        return f"CASE WHEN {self.missing(alias)} THEN 0 ELSE 1 + {self.code(alias)} END"

    # -- survey ------------------------------------------------------------------------------------
    def facts(self) -> list[str]:
        """Aggregates: the number of rows that have a value."""
        return [f"pg_catalog.count(CASE WHEN {self.is_present('s')} THEN 1 END)"]

    def measured(self, survey: Survey, known: int, facts: Sequence[Any]) -> Self:
        """The column with its most frequent categories."""
        most, least = self._limits(survey)
        rows = survey.run(self._most_frequent(survey.table), (least, most))
        for category, _ in rows:
            if len(category) > LONGEST_CATEGORY:
                raise InvalidData(
                    f"column {self.name!r}: got a text of {len(category)} characters; allowed "
                    f"for a category: {LONGEST_CATEGORY}",
                    hint="leave the column out",
                )
        covered = int(sum(count for _, count in rows))
        self._check_coverage(survey, covered, known)
        assert self.statistics is not None
        statistics = replace(self.statistics, unseen=known - covered)
        return replace(self, categories=tuple(one for one, _ in rows), statistics=statistics)

    def _limits(self, survey: Survey) -> tuple[int, int]:
        """Most categories, and rows of each at least."""
        return survey.max_categories, 1

    def _check_coverage(self, survey: Survey, covered: int, known: int) -> None:
        """Refuse a column most of whose values would have no category, and notify of one where some have none."""
        if covered < survey.min_coverage * known:
            raise self._uncovered(survey, covered, known)
        if covered < known:
            survey.notify(
                f"column {self.name!r} has more than {survey.max_categories} categories; the most frequent "
                f"ones, {100 * covered // known} % of the rows, have a code of their own"
            )

    def _uncovered(self, survey: Survey, covered: int, known: int) -> InvalidData:
        wanted = survey.min_coverage * known
        total, enough = survey.run(self._how_many_cover(survey.table), (wanted,))[0]
        others = f"max_categories := {enough} covers enough" if enough <= MAX_FEATURES else None
        ways = [
            "exclude the column if it names rows",
            "group rare values in a view",
            others,
            f"min_coverage := {math.floor(100 * covered / known) / 100} takes them as they are",
        ]
        return InvalidData(
            f"column {self.name!r}: got {total} categories, of which the {survey.max_categories} most frequent "
            f"ones cover {100 * covered / known:.3g} % of the values; allowed: at least "
            f"{100 * survey.min_coverage:.3g} %",
            hint="; ".join(way for way in ways if way),
        )

    def _most_frequent(self, table: str) -> str:
        """SQL of the most frequent categories, sorted, with their frequency. Parameters: rows of each at least, how
        many.

        The server sorts, as it is the server that looks for one of them by halving.
        """
        return (
            f"SELECT f.category, f.n FROM ({self._counted(table)} HAVING pg_catalog.count(*) >= %s "
            "ORDER BY 2 DESC, 1 LIMIT %s) f "
            'ORDER BY f.category COLLATE "C"'
        )

    def _how_many_cover(self, table: str) -> str:
        """SQL of one row: how many categories there are, and how many of the most frequent ones have so many
        rows. Parameter: rows."""
        return (
            "SELECT pg_catalog.count(*), pg_catalog.count(CASE WHEN r.earlier < %s THEN 1 END) FROM ("
            "SELECT pg_catalog.sum(g.n) OVER (ORDER BY g.n DESC, g.category) - g.n AS earlier "
            f"FROM ({self._counted(table)}) g) r"
        )

    def _counted(self, table: str) -> str:
        return (
            'SELECT pg_catalog.min(c.category COLLATE "C") AS category, pg_catalog.count(*) AS n '
            f"FROM (SELECT {self.category('s')} AS category FROM {table} "
            f"WHERE {self.is_present('s')}) c GROUP BY c.category"
        )


@registered
class OneHot(Categorical, frozen=True, omit_defaults=False, eq=False):
    """A number for each category: 1 for that of the row, 0 for all others; all 0 where it is none of them."""

    method: ClassVar[str] = "onehot"
    options: ClassVar[tuple[Option, ...]] = (INDICATOR,)

    @property
    def width(self) -> int:
        """The number of categories, and one more if there is an indicator of missing values."""
        return len(self.categories) + self.has_missing

    def features(self, alias: str) -> list[str]:
        """SQL of each, and of the indicator."""
        found = [
            f"CASE WHEN {self.is_category(alias, value)} THEN 1 ELSE 0 END"
            for value in self.categories
        ]
        if self.has_missing:
            found.append(f"CASE WHEN {self.is_present(alias)} THEN 0 ELSE 1 END")
        return found

    def _described(self, position: int) -> Iterator[dict[str, Any]]:
        for place, category in enumerate(self.categories, position):
            yield described_row(place, f"{self.name} = {category}", category=category)


@registered
class Integer(Categorical, frozen=True, omit_defaults=False, eq=False):
    """The number of the category, from 1; 0 where it is none of them, the last one where it is missing."""

    method: ClassVar[str] = "integer"

    @property
    def width(self) -> int:
        """The number of categories, and one more if there is an indicator of missing values."""
        return 1

    def features(self, alias: str) -> list[str]:
        """SQL of the number."""
        missing = len(self.categories) + 1 if self.has_missing else 0
        return [f"CASE WHEN {self.missing(alias)} THEN {missing} ELSE {self.code(alias)} END"]

    def _described(self, position: int) -> Iterator[dict[str, Any]]:
        yield described_row(position, f"{self.name} is none of these", category=None, code=0)
        for code, category in enumerate(self.categories, 1):
            yield described_row(position, f"{self.name} = {category}", category=category, code=code)

    def _missing_row(self, position: int) -> dict[str, Any]:
        return described_row(position, f"{self.name} is missing", code=len(self.categories) + 1)


def _comparison(column: Column) -> Comparison:
    if column.category == "S" and _CITEXT.fullmatch(column.base_type):
        return Comparison.FOLDED
    return _COMPARISONS[column.form]


def looked_up(text: str, codes: Sequence[tuple[int, str]]) -> str:
    """SQL of the number of a text by a constant of the server, in which keys are found by their bytes.

    Args:
        text: SQL of it.
        codes: numbers and texts; any other text has the number 0.
    """
    known = json.dumps({value: number for number, value in codes}, ensure_ascii=False)
    return f"COALESCE(({literal(known)}::jsonb OPERATOR(pg_catalog.->>) ({text}))::integer, 0)"


def _halved(text: str, codes: list[tuple[int, str]]) -> str:
    if len(codes) == 1:
        number, value = codes[0]
        return f"CASE WHEN {text} = {literal(value)} THEN {number} ELSE 0 END"
    middle = len(codes) // 2
    low, high = _halved(text, codes[:middle]), _halved(text, codes[middle:])
    return f"CASE WHEN {text} < {literal(codes[middle][1])} THEN {low} ELSE {high} END"


def _text(comparison: Comparison, form: str, name: str) -> str:
    if comparison is Comparison.FOLDED:
        return f'pg_catalog.lower({name}::text COLLATE "default")'
    if comparison is Comparison.NUMBER:
        return _number(name, form)
    if comparison is Comparison.DATE:
        day = f"pg_catalog.to_char({name}, 'YYYY-MM-DD')"
        if form != "date":
            midnight = f"pg_catalog.date_trunc('day', {name})"
            day = f"CASE WHEN {name} = {midnight} THEN {day} ELSE {_instant(name)} END"
        return f"{day} || {_before_christ(name)}"
    if comparison is Comparison.INSTANT:
        utc = f"({name} AT TIME ZONE 'UTC')"
        return f"{_instant(utc)} || '+00' || {_before_christ(utc)}"
    if comparison is Comparison.INTERVAL:
        return f"pg_catalog.justify_interval({name})::text"
    return f"{name}::text"


def _number(name: str, form: str) -> str:
    """Digits without an exponent, or zeros that say nothing: those of 2001 in any type."""
    if form == "numeric":
        return _trimmed(f"{name}::text")
    if form == "boolean":
        return f"{name}::integer::text"
    if form not in _FLOATS:
        return f"{name}::text"
    whole = f"{name} = pg_catalog.trunc({name}::double precision) AND pg_catalog.abs({name}) <= {_WHOLE}"
    # As many digits as every server has of such a number, if these are all.
    short = f"{name}::numeric::{form} = {name}"
    return (
        f"CASE WHEN {whole} THEN {name}::bigint::text "
        f"WHEN {short} THEN {_trimmed(f'{name}::numeric::text')} ELSE {name}::text END"
    )


def _instant(name: str) -> str:
    return _trimmed(f"pg_catalog.to_char({name}, 'YYYY-MM-DD HH24:MI:SS.US')")


def _before_christ(name: str) -> str:
    year = f"pg_catalog.date_part('year', {name})"
    return f"CASE WHEN {year} < 0 THEN ' BC' ELSE '' END"


def _trimmed(text: str) -> str:
    """Without zeros behind the last digit of a fraction."""
    trimmed = f"pg_catalog.rtrim(pg_catalog.rtrim({text}, '0'), '.')"
    return f"CASE WHEN pg_catalog.strpos({text}, '.') > 0 THEN {trimmed} ELSE {text} END"
