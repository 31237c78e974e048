"""Identifiers as values: quoted once, here, and never by hand elsewhere."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from cerebro_db.errors import InvalidArgument

MAX_IDENTIFIER_BYTES = 63
# Where the tables of states are.
STATES_SCHEMA = "cerebro_states"

# What the server's quote_ident() leaves as it is, unless it is a keyword that is none of the
# unreserved ones, in any version.
_PLAIN = re.compile(r"[a-z_][a-z0-9_]*")
_KEYWORDS = {
    "all", "analyse", "analyze", "and", "any", "array", "as", "asc", "asymmetric", "authorization",
    "between", "bigint", "binary", "bit", "boolean", "both", "case", "cast", "char", "character",
    "check", "coalesce", "collate", "collation", "column", "concurrently", "constraint", "create",
    "cross", "current_catalog", "current_date", "current_role", "current_schema", "current_time",
    "current_timestamp", "current_user", "dec", "decimal", "default", "deferrable", "desc",
    "distinct", "do", "else", "end", "except", "exists", "extract", "false", "fetch", "float",
    "for", "foreign", "freeze", "from", "full", "grant", "greatest", "group", "grouping", "having",
    "ilike", "in", "initially", "inner", "inout", "int", "integer", "intersect", "interval", "into",
    "is", "isnull", "join", "json", "json_array", "json_arrayagg", "json_exists", "json_object",
    "json_objectagg", "json_query", "json_scalar", "json_serialize", "json_table", "json_value",
    "lateral", "leading", "least", "left", "like", "limit", "localtime", "localtimestamp",
    "merge_action", "national", "natural", "nchar", "none", "normalize", "not", "notnull", "null",
    "nullif", "numeric", "offset", "on", "only", "or", "order", "out", "outer", "over", "overlaps",
    "overlay", "placing", "position", "precision", "primary", "real", "references", "returning",
    "right", "row", "select", "session_user", "setof", "similar", "smallint", "some", "substring",
    "symmetric", "system_user", "table", "tablesample", "then", "time", "timestamp", "to",
    "trailing", "treat", "trim", "true", "union", "unique", "user", "using", "values", "varchar",
    "variadic", "verbose", "when", "where", "window", "with", "xmlattributes", "xmlconcat",
    "xmlelement", "xmlexists", "xmlforest", "xmlnamespaces", "xmlparse", "xmlpi", "xmlroot",
    "xmlserialize", "xmltable",
    # Of servers with segments.
    "decode", "distributed", "exclude", "following", "group_id", "log", "median", "partition",
    "preceding", "rollup", "scatter", "sets", "unbounded",
}  # fmt: skip


def quote(identifier: str) -> str:
    """An identifier as SQL text.

    A per cent sign is doubled, because every statement passes through the
    client's parameter formatting; statements are therefore always sent with
    parameters, be it an empty tuple.
    """
    if not identifier or "\0" in identifier:
        raise InvalidArgument(f"got the identifier {identifier!r}; allowed: 1 to 63 bytes, no NUL")
    return '"' + identifier.replace('"', '""').replace("%", "%%") + '"'


def literal(value: str) -> str:
    """A text as SQL, for expressions that are part of many statements; others bind their values.

    It means the same whether or not backslashes escape. A per cent sign is doubled, as above.
    """
    if "\0" in value:
        raise InvalidArgument(f"got the text {value!r}; allowed: no NUL")
    text = value.replace("\\", "\\\\").replace("'", "''").replace("%", "%%")
    return f"E'{text}'" if "\\" in value else f"'{text}'"


def shown_literal(value: str) -> str:
    """Text as a literal in a statement that people may copy."""
    return "'" + value.replace("'", "''") + "'"


def value_literal(value: Any, quoted: Callable[[str], str] | None = None) -> str:
    """A value of a statement that has no other parameters: NULL, a truth value, number, text or list.

    Args:
        quoted: the server's own quoting of texts, where it is at hand.
    """
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value) if math.isfinite(value) else f"'{value}'::pg_catalog.float8"
    if isinstance(value, list | tuple):
        listed = ", ".join(value_literal(one, quoted) for one in value)
        return f"ARRAY[{listed}]" if value else "'{}'"
    if quoted is not None:
        return str(quoted(value))
    text = str(value).replace("'", "''")
    return f"E'{text.replace(chr(92), chr(92) * 2)}'" if "\\" in text else f"'{text}'"


def shown_identifier(identifier: str) -> str:
    """Identifier for people, in quotes only where it needs them."""
    if _PLAIN.fullmatch(identifier) and identifier not in _KEYWORDS:
        return identifier
    return '"' + identifier.replace('"', '""') + '"'


@dataclass(frozen=True)
class QualifiedName:
    """A table's schema and name, unquoted."""

    schema: str
    name: str

    @property
    def sql(self) -> str:
        """The name as SQL text for a statement with parameters."""
        return f"{quote(self.schema)}.{quote(self.name)}"

    @property
    def text(self) -> str:
        """The name as a value, for ``to_regclass`` and the like: quoted, nothing doubled for formatting."""
        parts = (part.replace('"', '""') for part in (self.schema, self.name))
        return ".".join(f'"{part}"' for part in parts)

    def suffixed(self, suffix: str) -> QualifiedName:
        """The name of a companion table, such as ``<name>_summary``."""
        name = self.name + suffix
        if len(name.encode()) > MAX_IDENTIFIER_BYTES:
            raise InvalidArgument(
                f"got a name of {len(self.name.encode())} bytes, {self.name!r}; "
                f"with the suffix {suffix!r} it may have {MAX_IDENTIFIER_BYTES}"
            )
        return QualifiedName(self.schema, name)

    def __str__(self) -> str:
        """The name as the server would quote it, which names the same table when it is given."""
        return f"{shown_identifier(self.schema)}.{shown_identifier(self.name)}"


# A source of one row without columns that are read: an aggregation over it and a table runs in the
# session's own process. Over a table alone, of which each segment has a copy, it may run on one.
HERE = "(SELECT FROM pg_catalog.pg_database WHERE datname = pg_catalog.current_database()) AS here"
