"""SQL of categories: one text for all values that are equal, whatever they look like in their type."""

from __future__ import annotations

import re

from cerebro_db.configs.encodings import ColumnEncoding, Comparison
from cerebro_db.postgres.names import literal, quote

_LARGEST = "1.7976931348623157e308::double precision"
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
# How the categories of a column look that can be read as its type, and that type.
_WRITTEN = {
    (Comparison.NUMBER, "integer"): (_WHOLE_NUMBER, "bigint"),
    (Comparison.NUMBER, "double precision"): (_ANY_NUMBER, "double precision"),
    (Comparison.NUMBER, "numeric"): (_ANY_NUMBER, "numeric"),
    (Comparison.DATE, "date"): (_DAY, "date"),
    (Comparison.DATE, "timestamp"): (_TIME, "timestamp"),
    (Comparison.INSTANT, "timestamptz"): (_TIME, "timestamptz"),
}


def is_present(column: ColumnEncoding, alias: str) -> str:
    """Condition over ``alias``: there is a value. NaN and what is infinite are missing."""
    name = f"{alias}.{quote(column.name)}"
    if column.comparison is Comparison.WRITTEN:
        return f"{name} IS NOT NULL"
    if column.form in _FLOATS:
        return f"pg_catalog.abs({name}::double precision) <= {_LARGEST}"
    if column.form == "numeric":
        return f"{name}::text NOT IN ({_NOT_FINITE})"
    if column.form in (*_DATED, "interval"):
        return f"pg_catalog.isfinite({name})"
    return f"{name} IS NOT NULL"


def category(column: ColumnEncoding, alias: str) -> str:
    """The text by which the value of a row is compared; NULL where it is missing."""
    name = f"{alias}.{quote(column.name)}"
    text = _text(column, name)
    if column.comparison is Comparison.COLLATED:
        return f"{text} COLLATE {'.'.join(map(quote, column.collation))}"
    if column.form in (*_FLOATS, "numeric", *_DATED, "interval") and (
        column.comparison is not Comparison.WRITTEN
    ):
        text = f"CASE WHEN {is_present(column, alias)} THEN {text} END"
    # Byte by byte, whatever the column's collation says.
    return f'({text}) COLLATE "C"' if text.startswith("CASE") else f'{text} COLLATE "C"'


def is_category(column: ColumnEncoding, alias: str, value: str) -> str:
    """Condition over ``alias``: the value of a row is this category.

    Where the category can be written in the type of the column that is compared with, at no cost for each row.
    """
    name = f"{alias}.{quote(column.name)}"
    wanted = _WRITTEN.get((column.comparison, column.form))
    if wanted is not None and len(value) <= _MOST_DIGITS and wanted[0].fullmatch(value):
        return f"{name} = {literal(value)}::{wanted[1]}"
    return f"{category(column, alias)} = {literal(value)}"


def code_of(column: ColumnEncoding, alias: str) -> str:
    """The number of the category of a row, from 1; 0 where it is none of them, or missing."""
    text = category(column, alias)
    listed = list(enumerate(column.categories, 1))
    if column.comparison is not Comparison.COLLATED:
        return _halved(text, listed)
    # The order of a collation of another library would find other halves.
    each = " ".join(f"WHEN {text} = {literal(value)} THEN {number}" for number, value in listed)
    return f"CASE {each} ELSE 0 END"


def _halved(text: str, codes: list[tuple[int, str]]) -> str:
    if len(codes) == 1:
        number, value = codes[0]
        return f"CASE WHEN {text} = {literal(value)} THEN {number} ELSE 0 END"
    middle = len(codes) // 2
    low, high = _halved(text, codes[:middle]), _halved(text, codes[middle:])
    return f"CASE WHEN {text} < {literal(codes[middle][1])} THEN {low} ELSE {high} END"


def _text(column: ColumnEncoding, name: str) -> str:
    comparison, form = column.comparison, column.form
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
