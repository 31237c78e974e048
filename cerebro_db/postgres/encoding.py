"""SQL that encodes columns: statistics of a training table, and rows as arrays of numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cerebro_db.configs.encodings import ColumnEncoding, Encoding, Kind, Method
from cerebro_db.postgres.categories import category, code_of, is_category, is_present
from cerebro_db.postgres.names import QualifiedName, quote
from cerebro_db.postgres.table_kinds import ENCODED, PACKED

_LARGEST = "1.7976931348623157e308::double precision"
_SECONDS_OF_A_DAY = "86400.0"
# What decides how values are told as texts, how texts are read, and what names mean.
_DECIDING = (
    "search_path", "standard_conforming_strings", "extra_float_digits", "DateStyle", "IntervalStyle",
    "TimeZone",
)  # fmt: skip
FEATURE_COLUMNS = (
    "position integer, feature text, column_name text, column_type text, encoding text, "
    "category text, code integer, center double precision, scale double precision, "
    "fill double precision"
)


# The columns of a table whose collation takes texts for equal that are not the same. Older servers have no such
# collations. Parameter: the table's name.
COLLATIONS = """
SELECT a.attname, n.nspname, l.collname
  FROM pg_catalog.pg_attribute a
  JOIN pg_catalog.pg_collation l ON l.oid = a.attcollation
  JOIN pg_catalog.pg_namespace n ON n.oid = l.collnamespace
 WHERE a.attrelid = %s::pg_catalog.regclass AND a.attnum > 0 AND NOT a.attisdropped
   AND pg_catalog.row_to_json(l) ->> 'collisdeterministic' = 'false'
"""


def encoded(encoding: Encoding, alias: str) -> str:
    """An expression over ``alias``: all features of a row, ``double precision[]``, never NULL."""
    parts = [part for column in encoding.columns for part in _parts(column, alias)]
    return f"ARRAY[{', '.join(parts)}]::double precision[]"


def numbers(table: QualifiedName, columns: Sequence[ColumnEncoding]) -> str:
    """One row: the rows of the table, then for each column how many values it has that are not
    missing; for numbers also their mean, minimum and maximum."""
    parts = ["pg_catalog.count(*)"]
    for column in columns:
        if column.method.is_categorical:
            present = is_present(column, "s")
            parts.append(f"pg_catalog.count(CASE WHEN {present} THEN 1 END)")
        else:
            value = _finite(column, "s")
            parts += [f"pg_catalog.{name}({value})" for name in ("count", "avg", "min", "max")]
    return f"SELECT {', '.join(parts)} FROM ONLY {table.sql} s"


def deviations(
    table: QualifiedName, columns: Sequence[ColumnEncoding], units: Mapping[str, float]
) -> str:
    """One row: of each column the average distance of its values from its mean as it is known, and of
    those that are standardized the root of the average square of that; both in the unit of the column.
    """
    parts = []
    for column in columns:
        apart = f"({_finite(column, 's')} - {_number(column.fill)})"
        if (unit := units[column.name]) != 1.0:
            apart = f"({apart} / {_number(unit)})"
        square = f"pg_catalog.sqrt(pg_catalog.avg({apart} ^ 2))"
        parts.append(f"pg_catalog.avg({apart})")
        parts.append(square if column.method is Method.STANDARDIZE else "NULL")
    return f"SELECT {', '.join(parts)} FROM ONLY {table.sql} s"


def unheld(table: QualifiedName, column: ColumnEncoding) -> str:
    """The first whole number of a column that float32 does not hold, as text."""
    return (
        f"SELECT q.value::text FROM (SELECT s.{quote(column.name)} AS value, "
        f"s.{quote(column.name)}::double precision AS number FROM ONLY {table.sql} s OFFSET 0) q "
        "WHERE pg_catalog.abs(q.number) > 16777216 AND (pg_catalog.abs(q.number) > 9007199254740992 "
        "OR q.number::real::double precision <> q.number) ORDER BY q.number LIMIT 1"
    )


def expressions(encoding: Encoding, alias: str) -> list[tuple[str, str]]:
    """The name of each column, and the expression of its features."""
    return [
        (column.name, f"ARRAY[{', '.join(_parts(column, alias))}]::double precision[]")
        for column in encoding.columns
    ]


def categories(table: QualifiedName, column: ColumnEncoding) -> str:
    """The most frequent categories, sorted, with their frequency. Parameter: how many.

    The server sorts, as it is the server that looks for one of them by halving.
    """
    return (
        "SELECT f.category, f.n FROM ("
        'SELECT pg_catalog.min(c.category COLLATE "C") AS category, pg_catalog.count(*) AS n '
        f"FROM (SELECT {category(column, 's')} AS category FROM ONLY {table.sql} s "
        f"WHERE {is_present(column, 's')}) c "
        'GROUP BY c.category ORDER BY 2 DESC, 1 LIMIT %s) f ORDER BY f.category COLLATE "C"'
    )


def enough_categories(table: QualifiedName, column: ColumnEncoding) -> str:
    """One row: how many categories a column has, and how many of the most frequent ones have so many rows.
    Parameter: rows."""
    return (
        "SELECT pg_catalog.count(*), pg_catalog.count(CASE WHEN r.earlier < %s THEN 1 END) FROM ("
        "SELECT pg_catalog.sum(g.n) OVER (ORDER BY g.n DESC, g.category) - g.n AS earlier FROM ("
        'SELECT pg_catalog.min(c.category COLLATE "C") AS category, pg_catalog.count(*) AS n '
        f"FROM (SELECT {category(column, 's')} AS category FROM ONLY {table.sql} s "
        f"WHERE {is_present(column, 's')}) c GROUP BY c.category) g) r"
    )


def write_rows(output: QualifiedName, source: str, ids: Sequence[str], encoding: Encoding) -> str:
    """A table of the features of all rows of a source, each with what names it.

    Args:
        source: what stands behind FROM to read it, with the alias ``s``.
    """
    listed = ", ".join(f"s.{quote(name)}" for name in ids)
    return (
        f"CREATE TABLE {output.sql} AS SELECT {listed}, "
        f"{encoded(encoding, 's')} AS features FROM {source}; "
        f"{ENCODED.comment(output)}"
    )


# The comment of such a function.
FUNCTION = "Cerebro-DB: the features of a row"


def write_function(
    name: QualifiedName, source: QualifiedName, encoding: Encoding, replace: bool
) -> str:
    """A function from a row of a source to its features, whatever the settings of a session are."""
    create = "CREATE OR REPLACE" if replace else "CREATE"
    kept = " ".join(f"SET {setting} FROM CURRENT" for setting in _DECIDING)
    # A tag of a quoted body that is in none of the categories.
    body = f"SELECT {encoded(encoding, '$1')}"
    tag = "$features$"
    while tag in body:
        tag = f"{tag[:-1]}_$"
    return (
        f"{create} FUNCTION {name.sql}({source.sql}) RETURNS double precision[] LANGUAGE sql STABLE "
        f"{kept} AS {tag}{body}{tag}; "
        f"COMMENT ON FUNCTION {name.sql}({source.sql}) IS '{FUNCTION}'"
    )


def create_features(table: QualifiedName) -> str:
    """The table in which an encoding can be read. Parameter: its features as JSON."""
    return (
        f"CREATE TABLE {table.sql} ({FEATURE_COLUMNS}); "
        f"{PACKED.comment(table, '_encoding')}; "
        f"INSERT INTO {table.sql} SELECT * FROM pg_catalog.json_to_recordset(%s) "
        f"AS f({FEATURE_COLUMNS})"
    )


def missing(column: ColumnEncoding, alias: str) -> str:
    """Condition over ``alias``: the column has no value, as far as the encoding goes."""
    if column.method.is_categorical:
        return f"({is_present(column, alias)}) IS NOT TRUE"
    return f"({_is_finite(column, alias)}) IS NOT TRUE"


def unseen(column: ColumnEncoding, alias: str) -> str:
    """Condition over ``alias``: the column has a category that the encoding does not know."""
    return f"{is_present(column, alias)} AND {code_of(column, alias)} = 0"


def finite(column: ColumnEncoding, alias: str) -> str:
    """The number of a column that is none of categories; NULL where it is missing."""
    return _finite(column, alias)


def _parts(column: ColumnEncoding, alias: str) -> list[str]:
    if column.method is Method.INTEGER:
        return [_code(column, alias)]
    missing = []
    if column.method is Method.ONEHOT:
        values = [
            f"CASE WHEN {is_category(column, alias, value)} THEN 1 ELSE 0 END"
            for value in column.categories
        ]
        if column.has_missing:
            missing = [f"CASE WHEN {is_present(column, alias)} THEN 0 ELSE 1 END"]
        return values + missing
    finite = _is_finite(column, alias)
    value = f"({_value(column, alias)} - {_number(column.center)}) / {_number(column.scale)}"
    if column.has_missing:
        missing = [f"CASE WHEN {finite} THEN 0 ELSE 1 END"]
    return [f"CASE WHEN {finite} THEN {value} ELSE {_number(column.filled)} END", *missing]


def _code(column: ColumnEncoding, alias: str) -> str:
    """The number of the category of a row; the last one where it is missing."""
    missing = len(column.categories) + 1 if column.has_missing else 0
    found = code_of(column, alias)
    return f"CASE WHEN ({is_present(column, alias)}) IS NOT TRUE THEN {missing} ELSE {found} END"


def _value(column: ColumnEncoding, alias: str) -> str:
    name = f"{alias}.{quote(column.name)}"
    if column.kind is Kind.TIME:
        return f"(pg_catalog.date_part('epoch', {name}) / {_SECONDS_OF_A_DAY})"
    if column.kind is Kind.BOOLEAN:
        return f"{name}::integer::double precision"
    return f"{name}::double precision"


def _is_finite(column: ColumnEncoding, alias: str) -> str:
    if column.kind is Kind.BOOLEAN:
        return f"{alias}.{quote(column.name)} IS NOT NULL"
    # NaN is larger than any number.
    value = _value(column, alias)
    finite = f"pg_catalog.abs({value}) <= {_LARGEST}"
    if column.kind is not Kind.TIME:
        return finite
    # Older servers take an infinite time for zero seconds; a time of day knows no isfinite().
    name = f"{alias}.{quote(column.name)}"
    return f"({finite} AND ({value} <> 0 OR {name}::text NOT IN ('infinity', '-infinity')))"


def _finite(column: ColumnEncoding, alias: str) -> str:
    return f"CASE WHEN {_is_finite(column, alias)} THEN {_value(column, alias)} END"


def _number(value: float) -> str:
    return f"({value!r}::double precision)"
