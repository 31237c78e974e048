"""Identifiers as values: quoted once, here, and never by hand elsewhere."""

from __future__ import annotations

from dataclasses import dataclass

from cerebro_db.errors import InvalidArgument

MAX_IDENTIFIER_BYTES = 63


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
        return f"{self.schema}.{self.name}"
