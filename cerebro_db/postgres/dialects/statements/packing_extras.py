"""The parts of the statement that fills a buffer, for the inputs and outputs behind the first ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from cerebro_db.postgres.names import QualifiedName, literal, quote

# Of the types that the server itself has; a type of an extension has an operator of its own.
EQUALS = "OPERATOR(pg_catalog.=)"
# Rows that are left out and named.
FAULTS_SHOWN = 3


class Origin(NamedTuple):
    """Column that packed numbers come from.

    Attributes:
        name: of the column.
        is_whole: whether its type holds whole numbers only, though they are read in another type.
    """

    name: str = ""
    is_whole: bool = False

    @property
    def arguments(self) -> str:
        """The last arguments of the function that packs arrays."""
        return f"{literal(self.name)}, {str(self.is_whole).lower()}"


class Extra(NamedTuple):
    """A further column of a packed table.

    Attributes:
        name: of the column.
        expression: over the alias ``s`` of the source: of an array type, or of a class.
        class_type: SQL text of the class type; None for arrays.
        is_whole: as of ``Origin``.
        equals: SQL operator by which classes are compared.
    """

    name: str
    expression: str
    class_type: str | None = None
    is_whole: bool = False
    equals: str = EQUALS


def add_columns(table: QualifiedName, extras: Sequence[Extra]) -> str:
    """Give an empty packed table the columns."""
    added = ", ".join(
        f"ADD {quote(extra.name)} bytea NOT NULL, "
        f"ADD {quote(extra.name + '_shape')} integer[] NOT NULL, "
        f"ALTER {quote(extra.name)} SET STORAGE EXTERNAL"
        for extra in extras
    )
    return f"ALTER TABLE {table.sql} {added}"


def names(extras: Sequence[Extra]) -> str:
    """The columns that are inserted into, with a comma before each."""
    return "".join(f", {quote(extra.name)}, {quote(extra.name + '_shape')}" for extra in extras)


def packed(extras: Sequence[Extra], positions: str) -> str:
    """Their values, in the order of ``positions``.

    Parameters, one after another: of an array its shape on the wire and the divisor; of each the
    shape of a row.
    """
    return "".join(
        f", {_bytes(place, extra, positions)}, r.n || %s::integer[]"
        for place, extra in enumerate(extras)
    )


def gathered(extras: Sequence[Extra]) -> str:
    """Expressions over all rows of a buffer. Parameters: of each class the id of NULL."""
    return "".join(
        f", pg_catalog.string_agg({_sent(place, extra)}, ''::bytea) AS e{place}"
        for place, extra in enumerate(extras)
    )


def joins(extras: Sequence[Extra]) -> str:
    """Class ids beside the rows. Parameters: of each class all values."""
    return "".join(
        f" LEFT JOIN (SELECT u.v, (u.o - 1)::integer AS id FROM unnest(%s::{extra.class_type}[]) "
        f"WITH ORDINALITY AS u(v, o)) c{place} ON c{place}.v {extra.equals} {extra.expression}"
        for place, extra in enumerate(extras)
        if extra.class_type
    )


def _bytes(place: int, extra: Extra, positions: str) -> str:
    if extra.class_type:
        return f"cerebro._pack_labels(r.e{place}, r.keys, {positions})"
    origin = Origin(extra.name, extra.is_whole).arguments
    return f"cerebro._pack_arrays(r.e{place}, r.keys, {positions}, %s::integer[], %s, {origin})"


def _sent(place: int, extra: Extra) -> str:
    if extra.class_type:
        missing = f"CASE WHEN {extra.expression} IS NULL THEN %s ELSE -1 END"
        return f"pg_catalog.int4send(COALESCE(c{place}.id, {missing}))"
    # A NULL must not be skipped in silence: the empty bytes are found by their length.
    return f"COALESCE(pg_catalog.array_send({extra.expression}), ''::bytea)"
