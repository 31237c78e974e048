"""Columns of tables, and what values of their types are."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum


@dataclass(frozen=True)
class Column:
    """A column of a table.

    Attributes:
        name: unquoted.
        type: as SQL text, domains left as they are.
        type_oid: of the type below all domains.
        base_type: SQL text of that type, without length or precision.
        category: the server's category of that type, for example ``N`` or ``A``.
        element_oid: for an array, the type of its elements.
        element_category: for an array, the category of that.
        has_whole_values: whether all its values are known to be whole, though its type may hold others.
    """

    name: str
    type: str
    type_oid: int
    base_type: str
    category: str
    element_oid: int | None
    element_category: str | None
    has_whole_values: bool = False

    @property
    def is_array(self) -> bool:
        """True if the column holds arrays."""
        return self.element_oid is not None

    @property
    def cast(self) -> str:
        """The type below all domains, as text of a statement with parameters."""
        return self.base_type.replace("%", "%%")

    @property
    def is_whole(self) -> bool:
        """True if the column holds whole numbers only; arrays of integers say so themselves."""
        is_by_type = self.type_oid in INTEGERS or _WHOLE.fullmatch(self.type) is not None
        return is_by_type or self.has_whole_values

    @property
    def may_be_whole(self) -> bool:
        """True if its values have to be looked at: those of numeric without a scale, and arrays of it."""
        return _NUMERIC in (self.type_oid, self.element_oid) and "(" not in self.type

    @property
    def form(self) -> str:
        """The type of values, as far as it decides how they are read and compared."""
        return _FORMS.get(self.type_oid, "text")

    @property
    def values(self) -> Values | None:
        """The kind of values; None of types that nothing encodes."""
        if self.is_array:
            return None
        if self.type_oid in INTEGERS | FLOATS:
            return Values.NUMBER
        return Values.CATEGORY if self.type_oid == _UUID else _VALUES.get(self.category)


class Values(StrEnum):
    """Kind of values in a column, as far as its encoding goes."""

    NUMBER = "number"
    BOOLEAN = "boolean"
    TIME = "time"
    CATEGORY = "category"


def all_whole(rows: str, value: str) -> str:
    """SQL of whether the values of a numeric column are whole numbers, all of them.

    Args:
        rows: what stands behind FROM.
        value: SQL over its alias, of a row or of its elements.
    """
    return (
        f"SELECT NOT EXISTS (SELECT 1 FROM (SELECT {value} AS value FROM {rows}) q "
        "WHERE q.value <> pg_catalog.trunc(q.value))"
    )


INTEGERS = frozenset({20, 21, 23})
FLOATS = frozenset({700, 701, 1700})
# The type of numbers without decimals, and of arrays of these.
_WHOLE = re.compile(r"numeric\(\d+,(?:0|-\d+)\)(?:\[\])?")
_UUID, _NUMERIC = 2950, 1700
_VALUES = {"B": Values.BOOLEAN, "D": Values.TIME, "T": Values.TIME, "S": Values.CATEGORY,
           "E": Values.CATEGORY, "I": Values.CATEGORY}  # fmt: skip
_FORMS = {
    16: "boolean", 20: "integer", 21: "integer", 23: "integer", 700: "real", 701: "double precision",
    1700: "numeric", 1082: "date", 1114: "timestamp", 1184: "timestamptz", 1083: "time", 1266: "timetz",
    1186: "interval", 2950: "uuid", 869: "inet", 650: "inet", 829: "macaddr", 774: "macaddr",
}  # fmt: skip
