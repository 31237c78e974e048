"""Tables and columns that users name as text, found or checked in the server's catalog."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from cerebro_db.columns.values import Column
from cerebro_db.configs.arguments import nearest
from cerebro_db.configs.messages import shown
from cerebro_db.configs.names import is_registered
from cerebro_db.errors import (
    DuplicateTable,
    InvalidArgument,
    NotPermitted,
    UndefinedColumn,
    UndefinedTable,
    WrongObjectType,
)
from cerebro_db.postgres.names import (
    MAX_IDENTIFIER_BYTES,
    QualifiedName,
    shown_identifier,
    shown_literal,
)
from cerebro_db.postgres.sessions.session import Session
from cerebro_db.postgres.tables.foreign_code import check_code
from cerebro_db.postgres.tables.search_path import SCHEMA, TEMPORARY, search_path_of

KINDS = {
    "r": "table",
    "v": "view",
    "m": "materialized view",
    "f": "foreign table",
    "p": "partitioned table",
}
# Letters are matched by what they are not: Python takes long to compile a range of all characters.
_FIRST, _MORE = r"[^\x00-@\[-^`{-\x7f]", r"[^\x00-#%-/:-@\[-^`{-\x7f]"
_PART = rf'(?:"(?:[^"\0]|"")+"|{_FIRST}{_MORE}*)'
_NAME = re.compile(rf"\s*({_PART})(?:\s*\.\s*({_PART}))?\s*")
# As tools write it that know several databases: dbt's {{ this }}, SQLMesh's resolve_table.
_WITH_DATABASE = re.compile(rf"\s*({_PART})\s*\.\s*({_PART})\s*\.\s*({_PART})\s*")
_ASCII_LOWER = str.maketrans("ABCDEFGHIJKLMNOPQRSTUVWXYZ", "abcdefghijklmnopqrstuvwxyz")
_TEMPORARY_HINT = (
    "the function works in sessions of its own, which cannot read temporary tables: make it a "
    "table that lasts"
)
_NO_TABLE_HINT = "it is an index, a sequence or the like: name the table itself"
_REGISTERED_HINT = (
    "registered models are taken by cerebro.cerebro_predict, cerebro.cerebro_predict_row, cerebro.cerebro_evaluate, "
    "cerebro.cerebro_confusion_matrix, cerebro.cerebro_export and the functions that explain models, and as encoding_of "
    "by the functions that pack"
)


class Use(Enum):
    """Use of a table that a user names."""

    READ = "its rows are read"
    WRITE = "rows are added to it, or deleted"
    NAME = "its rows are left alone"


@dataclass(frozen=True)
class Relation:
    """A table or view that exists and that worker sessions can see."""

    name: QualifiedName
    oid: int
    kind: str
    columns: tuple[Column, ...]

    def has(self, name: str) -> bool:
        """True if there is a column of exactly this name."""
        return any(column.name == name for column in self.columns)


def find_if_there(
    session: Session, text: str | None, role: str, use: Use = Use.READ
) -> Relation | None:
    """The table or view that a user names, as by ``find``; None where there is nothing of that name."""
    given = require_text(text, role)
    for parts in _readings_here(session, given):
        if rows := _found(session, parts):
            return _relation(session, rows[0], given, role, use)
    return None


def find(session: Session, text: str | None, role: str, use: Use = Use.READ) -> Relation:
    """The table or view that a user names.

    Args:
        session: knows the caller's search path; not in a transaction that failed.
        text: as a user writes it: plain, quoted, with or without a schema.
        role: the name of the argument, for messages.
        use: what is done with it.

    Raises:
        InvalidArgument: ``text`` is NULL or empty.
        NotPermitted: that use would run code of another role as the caller.
        UndefinedTable: nothing of that name, or it is temporary.
        WrongObjectType: the name is that of an index, a sequence or the like.
    """
    found = find_if_there(session, text, role, use)
    if found is not None:
        return found
    given = require_text(text, role)
    raise UndefinedTable(
        f"{role}: got {given!r}; no table or view of that name exists",
        hint=_hint_where_none_is(session, given),
    )


def _hint_where_none_is(session: Session, given: str) -> str:
    if is_registered(given):
        return _REGISTERED_HINT
    path, schema = search_path_of(session), _readings_here(session, given)[0][:-1]
    if schema and path.is_temporary(schema[0]) and not path.in_callers:
        return _TEMPORARY_HINT
    return _nearest_table(session, given) + (UndefinedTable.advice or "")


def new_table(
    session: Session, text: str | None, role: str, suffixes: Sequence[str] = ("_summary",)
) -> QualifiedName:
    """The name of a table to be made, checked: it and its companions do not exist yet.

    Args:
        session: knows the caller's search path.
        text: identifier syntax is read as such, anything else is taken exactly.
        role: the name of the argument, for messages.
        suffixes: of the companion tables.
    """
    name = new_name(session, text, role)
    tables = [name, *(name.suffixed(suffix) for suffix in suffixes)]
    there = own_columns(session, name.schema, [table.name for table in tables])
    for table in tables:
        if table.name in there:
            raise exists_already(text, role, table)
    check_not_hidden(session, text, role, tables)
    return name


def check_not_hidden(
    session: Session, text: str | None, role: str, tables: Sequence[QualifiedName]
) -> None:
    """Refuse tables to be made that a temporary one of the caller would hide.

    Args:
        session: knows the caller's search path.
        text: as a user has named the first of them; with a schema nothing is hidden.
        role: the name of the argument, for messages.
        tables: to be made.

    Raises:
        DuplicateTable: there is such a temporary table.
    """
    path = search_path_of(session)
    readings = _readings_here(session, require_text(text, role))
    if len(readings[0]) > 1 or not path.hides(tables[0].schema):
        return
    there = own_columns(session, str(path.temporary), [table.name for table in tables])
    for table in tables:
        if table.name in there:
            raise DuplicateTable(
                f"{role}: got {text!r}; a temporary table of this session hides {table}",
                hint=f"drop the temporary table first, or name the schema: {tables[0]}",
            )


def exists_already(text: str | None, role: str, table: QualifiedName) -> DuplicateTable:
    """The error where one of the tables to be made is there."""
    return DuplicateTable(
        f"{role}: got {text!r}; the table {table} exists already",
        hint="choose another name; or, if Cerebro-DB made it, replace := true replaces it, and SELECT "
        f"cerebro.cerebro_drop_outputs({shown_literal(str(text))}) drops it",
    )


def own_columns(session: Session, schema: str, names: Sequence[str]) -> dict[str, set[str]]:
    """Columns of the tables of the caller in a schema, by the names that it has."""
    rows = session.run(_OWN_COLUMNS, (schema, list(names)))
    return {name: set(columns) for name, columns in rows}


def new_name(session: Session, text: str | None, role: str) -> QualifiedName:
    """The name of something to be made, with the schema in which the caller may make it.

    Args:
        session: knows the caller's search path.
        text: identifier syntax is read as such, anything else is taken exactly.
        role: the name of the argument, for messages.
    """
    parts = _readings_here(session, require_text(text, role))[0]
    _check_length(parts[-1], role)
    schema = _schema_for_new(session, parts[0] if len(parts) > 1 else None, role)
    return QualifiedName(schema, parts[-1])


def possible_names(session: Session, text: str) -> list[QualifiedName]:
    """The names that a text may mean where no table has it, in the order of the search path."""
    *schema, name = _readings_here(session, text)[0]
    return [QualifiedName(one, name) for one in schema or search_path_of(session).schemas]


def column(relation: Relation, text: str | None, role: str) -> Column:
    """The column of ``relation`` that a user names."""
    given = require_text(text, role)
    for name in [parts[0] for parts in _readings(given) if len(parts) == 1]:
        for candidate in relation.columns:
            if candidate.name == name:
                return candidate
    names = [shown_identifier(candidate.name) for candidate in relation.columns]
    near = nearest(given.strip().strip('"'), names)
    raise UndefinedColumn(
        f"{role}: got {given!r}; the columns of {relation.name} are: {', '.join(names)}",
        # Otherwise it is all names, which the message has already.
        hint=near if near.startswith("Did") else None,
    )


def require_text(text: str | None, role: str) -> str:
    """``text``, if it says anything."""
    if text is None or not text.strip():
        got = "NULL" if text is None else repr(text)
        raise InvalidArgument(f"{role}: got {got}; allowed: a name")
    if "\0" in text:
        raise InvalidArgument(f"{role}: got {text!r}; allowed: a name without NUL characters")
    return text


def spellings(text: str) -> list[str]:
    """Spellings of a table's name by the server, for each of what a text may mean."""
    return [_path(parts) for parts in _readings(text)]


def _readings(text: str) -> list[tuple[str, ...]]:
    """Readings of a text, first as an SQL identifier, then as the exact name."""
    exact = (text,)
    match = _NAME.fullmatch(text)
    if match is None:
        return [exact]
    parts = tuple(_fold(part) for part in match.groups() if part is not None)
    return [parts] if parts == exact else [parts, exact]


def _readings_here(session: Session, text: str) -> list[tuple[str, ...]]:
    """Readings of a name before whose schema the name of this database may be, as in SQL."""
    match = _WITH_DATABASE.fullmatch(text)
    if match is not None:
        database, *parts = map(_fold, match.groups())
        if session.run("SELECT pg_catalog.current_database()::pg_catalog.text", ()) == [
            (database,)
        ]:
            return [tuple(parts)]
    return _readings(text)


def _fold(part: str) -> str:
    if part.startswith('"'):
        return part[1:-1].replace('""', '"')
    return part.translate(_ASCII_LOWER)


def _found(session: Session, parts: tuple[str, ...]) -> list[tuple[object, ...]]:
    path = search_path_of(session)
    if len(parts) > 1:
        if path.is_temporary(parts[0]) and not path.in_callers:
            return []
        return session.run(_OF_SCHEMA, (_path(parts),))
    return session.run(_ON_PATH, (list(path.schemas), parts[0]))


def _nearest_table(session: Session, given: str) -> str:
    """The table that was meant, perhaps, among those that the caller may read; or nothing."""
    *schema, name = _readings_here(session, given)[0]
    schemas = schema or list(search_path_of(session).schemas)
    names = [shown_identifier(row[0]) for row in session.run(_READABLE, (schemas,))]
    near = nearest(name[:MAX_IDENTIFIER_BYTES], names)
    return f"{near} Otherwise: " if near.startswith("Did") else ""


def _path(parts: tuple[str, ...]) -> str:
    """The name as a value: quoted, but nothing doubled for a statement's formatting."""
    return ".".join('"' + part.replace('"', '""') + '"' for part in parts)


def _relation(
    session: Session, row: tuple[object, ...], given: str, role: str, use: Use
) -> Relation:
    oid, schema, name, kind, persistence = row
    path = search_path_of(session)
    if kind not in KINDS:
        raise WrongObjectType(
            f"{role}: got {given!r}; allowed: a table or a view", hint=_NO_TABLE_HINT
        )
    if persistence == "t" and not path.in_callers:
        raise UndefinedTable(
            f"{role}: got {given!r}, which is a temporary table; allowed: a table that lasts",
            hint=_TEMPORARY_HINT,
        )
    found = QualifiedName(str(schema), str(name))
    if use is not Use.NAME:
        check_code(session, found, int(str(oid)), role, is_written=use is Use.WRITE)
    return Relation(found, int(str(oid)), str(kind), _columns(session, oid))


def _columns(session: Session, oid: object) -> tuple[Column, ...]:
    rows = session.run(_COLUMNS, (oid,))
    # Few tables have any, and to look below them takes three times as long.
    if any(is_domain for *_, is_domain in rows):
        rows = session.run(_COLUMNS_BELOW_DOMAINS, (oid, oid))
    return tuple(Column(*fields) for *fields, _ in rows)


def _check_length(name: str, role: str) -> None:
    size = len(name.encode())
    if size > MAX_IDENTIFIER_BYTES:
        raise InvalidArgument(
            f"{role}: got a name of {size} bytes; allowed: up to {MAX_IDENTIFIER_BYTES}"
        )


def _schema_for_new(session: Session, schema: str | None, role: str) -> str:
    path = search_path_of(session)
    if schema is None:
        schema = path.first
        if schema is None:
            raise InvalidArgument(
                f"{role}: no schema of the search_path exists; name one",
                hint="write schema.table, or SET search_path",
            )
    if path.is_temporary(schema):
        if path.in_callers:
            return path.temporary or TEMPORARY
        raise UndefinedTable(
            f"{role}: got the schema {schema}, that of temporary tables; allowed: one that lasts",
            hint=_TEMPORARY_HINT,
        )
    rows = session.run(SCHEMA, (schema,))
    if not rows:
        raise UndefinedTable(
            f"{role}: got the schema {schema!r}; it does not exist",
            hint="CREATE SCHEMA makes it; SELECT nspname FROM pg_namespace shows those there are",
        )
    if not rows[0][0]:
        raise NotPermitted(
            f"{role}: the calling role may not create tables in schema {schema!r}",
            hint="name a table of another schema, or ask its owner to GRANT CREATE ON SCHEMA",
        )
    return schema


_FIND = """
SELECT c.oid::bigint, n.nspname, c.relname, c.relkind, c.relpersistence
  FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
"""
_OF_SCHEMA = _FIND + " WHERE c.oid = pg_catalog.to_regclass(%s)"
_ON_PATH = (
    _FIND
    + """  JOIN pg_catalog.unnest(%s::name[]) WITH ORDINALITY AS p(schema, place) ON p.schema = n.nspname
 WHERE c.relname = %s ORDER BY p.place LIMIT 1
"""
)
# Of a schema that holds more, some are looked at.
_READABLE = """
SELECT c.relname
  FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
 WHERE n.nspname = ANY (%s::name[]) AND n.nspname NOT IN ('pg_catalog', 'cerebro')
   AND c.relkind IN ('r', 'v', 'm', 'f', 'p') AND c.relpersistence <> 't'
   AND pg_catalog.has_schema_privilege(n.oid, 'USAGE')
   AND pg_catalog.has_any_column_privilege(c.oid, 'SELECT')
 ORDER BY c.relname LIMIT 2000
"""
_OWN_COLUMNS = """
SELECT c.relname::text,
       CASE WHEN c.relkind = 'r' AND pg_catalog.pg_has_role(c.relowner, 'USAGE')
            THEN ARRAY(SELECT a.attname::text FROM pg_catalog.pg_attribute a
                        WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped)
            ELSE '{}' END
  FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
 WHERE n.nspname = %s AND c.relname = ANY (%s::name[])
"""
_FIELDS = """
SELECT a.attname, pg_catalog.format_type(a.atttypid, a.atttypmod) AS type, t.oid::bigint,
       pg_catalog.format_type(t.oid, -1) AS base_type, t.typcategory::text,
       e.oid::bigint AS element_oid, e.typcategory::text AS element_category, t.typtype = 'd'
"""
_ELEMENT = """
  LEFT JOIN pg_catalog.pg_type e
    ON e.oid = t.typelem AND t.typcategory = 'A' AND t.typlen = -1
"""
_COLUMNS = f"""{_FIELDS}
  FROM pg_catalog.pg_attribute a
  JOIN pg_catalog.pg_type t ON t.oid = a.atttypid
{_ELEMENT}
 WHERE a.attrelid = %s AND a.attnum > 0 AND NOT a.attisdropped
 ORDER BY a.attnum
"""
_COLUMNS_BELOW_DOMAINS = f"""
WITH RECURSIVE base(attnum, oid) AS (
    SELECT attnum, atttypid FROM pg_catalog.pg_attribute
     WHERE attrelid = %s AND attnum > 0 AND NOT attisdropped
    UNION ALL
    SELECT b.attnum, t.typbasetype
      FROM base b JOIN pg_catalog.pg_type t ON t.oid = b.oid WHERE t.typtype = 'd'
)
{_FIELDS}
  FROM base b
  JOIN pg_catalog.pg_type t ON t.oid = b.oid AND t.typtype <> 'd'
  JOIN pg_catalog.pg_attribute a ON a.attrelid = %s AND a.attnum = b.attnum
{_ELEMENT}
 ORDER BY a.attnum
"""


ALL = "*"
# A quoted identifier, or whatever has neither commas nor quotes.
_ITEM = re.compile(r'\s*("(?:[^"]|"")+"|[^",\s](?:[^",]*[^",\s])?)\s*(?:,|$)')


def split_names(text: str | None, role: str) -> list[str]:
    """The names of a list, as they are written.

    Args:
        text: such as ``age, "Zip code"``; commas within quotes belong to the name.
        role: the name of the argument, for messages.
    """
    given = require_text(text, role)
    names, place = [], 0
    while place < len(given):
        match = _ITEM.match(given, place)
        if match is None:
            raise InvalidArgument(
                f"{role}: got {shown(given)}; allowed: names of columns separated by commas",
                hint='a name with commas, quotes or spaces at its ends is written in quotes: "a, b"',
            )
        names.append(match[1])
        place = match.end()
    if given.rstrip().endswith(","):
        raise InvalidArgument(
            f"{role}: got {shown(given)}; a name is missing after the last comma",
            hint="leave the last comma out",
        )
    return names


def listed_columns(relation: Relation, text: str | None, role: str) -> tuple[Column, ...]:
    """The columns that a user lists, in that order; ``*`` stands for all.

    Raises:
        UndefinedColumn: one of them does not exist.
        InvalidArgument: one is there twice.
    """
    if text is not None and text.strip() == ALL:
        return relation.columns
    found = tuple(column(relation, name, role) for name in split_names(text, role))
    names = [one.name for one in found]
    for name in names:
        if names.count(name) > 1:
            raise InvalidArgument(
                f"{role}: got the column {name!r} twice; allowed: once",
                hint="a view can have it under a second name",
            )
    return found
