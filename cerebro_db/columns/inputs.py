"""Kinds of inputs: what a network gets of each row, and the SQL that reads and checks it.

An input is read in two steps: ``value`` is an expression over the rows, and ``sent`` makes of such a value the bytes that
workers parse; ``fault`` tells what is wrong with a value where they refuse it. Packing and prediction use the same ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from cerebro_db.columns.encoded import Encoding
from cerebro_db.columns.images import ImageEncoding
from cerebro_db.columns.numbers import FLOAT32_LIMIT
from cerebro_db.columns.recorded import Recorded
from cerebro_db.columns.values import FLOATS, INTEGERS, Column
from cerebro_db.errors import WrongObjectType
from cerebro_db.postgres.names import quote

_MONEY = 790
_FLOAT8_OID, _FLOAT8_ARRAY_OID, _SMALLINT_OID, _BIGINT_OID, _BYTEA_OID = 701, 1022, 21, 20, 17
# Of elements that workers read as they are: smallint, integer, bigint, real, double precision.
_SENT_OIDS = frozenset({21, 23, 20, 700, 701})
CAST_HINT = "cast the column in a view, as in SELECT value::real AS value"
# The name of what is made of several columns.
FEATURES = "features"


@dataclass(frozen=True)
class Input:
    """An array of numbers.

    Attributes:
        column: of the source, or what stands for the columns that are encoded.
        cast: SQL type that it is read as; empty if it can be read as it is.
        element_oid: of what is then read.
        shape: of every row; empty until known.
        is_wide: whether a copy of the column is stored uncompressed.
        can_be_damaged: whether rows may be left out where they cannot be read.
    """

    is_wide: ClassVar[bool] = True
    can_be_damaged: ClassVar[bool] = False

    column: Column
    cast: str
    element_oid: int
    shape: tuple[int, ...] = ()

    @property
    def recorded(self) -> Recorded | None:
        """Encoding of the rows; None where they hold features themselves."""
        return None

    @property
    def sources(self) -> tuple[str, ...]:
        """The columns that are read."""
        return (self.column.name,)

    def column_of(self, place: int) -> str | None:
        """Name of the column that a feature comes from, by its place in a row; None where there is one only."""
        return None

    def value(self, alias: str) -> str:
        """SQL of what is read of a row, over an alias of the source."""
        name = f"{alias}.{quote(self.column.name)}"
        return f"{name}::{self.cast}" if self.cast else name

    def readings(self, alias: str) -> list[tuple[str, str]]:
        """The columns, each with SQL of what is read of it."""
        return [(self.column.name, self.value(alias))]

    def sent(self, value: str) -> str:
        """SQL of the bytes of a value; empty for NULL."""
        return sent_array(value)

    def copied(self, name: str) -> Input:
        """The input whose values lie in a column of a copy."""
        return Input(replace(self.column, name=name), "", self.element_oid, self.shape)

    @property
    def known_shape(self) -> str | None:
        """SQL of the shape of every row; None where the first row tells it."""
        return None

    def shape_of(self, value: str) -> str:
        """SQL of NULL, as the fault of an image says all."""
        return array_shape(value)

    def fault(self, value: str, shape: Sequence[int], divisor: str) -> str:
        """SQL of what is wrong with a value: ``null``, ``shape``, ``element``, ``value``, or words that tell it."""
        return array_fault(value, shape, divisor)

    def damage(self, value: str) -> str:
        """SQL of why a row is left out; NULL where it is not."""
        return "NULL::text"


class NumberInput(Input):
    """A number, as an array of one."""

    is_wide: ClassVar[bool] = False

    def value(self, alias: str) -> str:
        """SQL of the array."""
        return f"ARRAY[{super().value(alias)}]"


@dataclass(frozen=True, kw_only=True)
class EncodedInput(Input):
    """Several columns, encoded."""

    is_wide: ClassVar[bool] = False

    encoding: Encoding

    @property
    def recorded(self) -> Encoding:
        """The encoding."""
        return self.encoding

    @property
    def sources(self) -> tuple[str, ...]:
        """The columns of the encoding."""
        return tuple(self.encoding.names)

    def column_of(self, place: int) -> str:
        """Name of the column that a feature comes from."""
        return self.encoding.column_of(place)

    def value(self, alias: str) -> str:
        """SQL of the features of all columns."""
        return self.encoding.expression(alias)

    def readings(self, alias: str) -> list[tuple[str, str]]:
        """The columns, each with SQL of its features."""
        return self.encoding.readings(alias)


@dataclass(frozen=True, kw_only=True)
class ImageInput(Input):
    """An image."""

    can_be_damaged: ClassVar[bool] = True

    image: ImageEncoding

    @property
    def recorded(self) -> ImageEncoding:
        """Format and shape."""
        return self.image

    def sent(self, value: str) -> str:
        """SQL of the bytes of an array of its values."""
        return self.image.sent(value)

    def copied(self, name: str) -> ImageInput:
        """The input whose images lie in a column of a copy."""
        return replace(self, column=replace(self.column, name=name))

    @property
    def known_shape(self) -> str:
        """The shape that was asked for."""
        return self.image.shape_sql

    def shape_of(self, value: str) -> str:
        """SQL of NULL, as the fault of an image says all."""
        return "NULL::integer[]"

    def fault(self, value: str, shape: Sequence[int], divisor: str) -> str:
        """SQL of what is wrong with an image."""
        return self.image.fault(value, divisor)

    def damage(self, value: str) -> str:
        """SQL of why it cannot be read."""
        return self.image.fault(value)


def array_input(column: Column) -> Input:
    """The input of a column of arrays.

    Raises:
        WrongObjectType: the column is no array of numbers.
    """
    cast = array_cast(column)
    if cast is None:
        raise WrongObjectType(
            f"independent_varname: the column {column.name!r} is of type {column.type}; "
            "allowed: arrays of smallint, integer, bigint, real, double precision or numeric",
            hint="single values are packed with cerebro.cerebro_pack_columns, images with cerebro.cerebro_pack_images",
        )
    return Input(column, *cast)


def listed_input(column: Column, role: str) -> Input:
    """The input of one of several columns: an array, or a number as an array of one.

    Raises:
        WrongObjectType: the column holds neither.
    """
    if column.type_oid in INTEGERS:
        return NumberInput(column, "bigint", _BIGINT_OID)
    if column.type_oid in FLOATS:
        return NumberInput(column, "double precision", _FLOAT8_OID)
    cast = array_cast(column)
    if cast is None:
        raise WrongObjectType(
            f"{role}: the column {column.name!r} is of type {column.type}; allowed: smallint, "
            "integer, bigint, real, double precision or numeric, and arrays of these",
            hint=CAST_HINT,
        )
    return Input(column, *cast)


def encoded_input(encoding: Encoding) -> EncodedInput:
    """The input that several columns make together."""
    kind = "double precision[]"
    column = Column(FEATURES, kind, _FLOAT8_ARRAY_OID, kind, "A", _FLOAT8_OID, "N")
    return EncodedInput(column, "", _FLOAT8_OID, encoding=encoding)


def image_input(column: Column, image: ImageEncoding) -> ImageInput:
    """The input that a column of images is.

    Raises:
        WrongObjectType: the column is not of type bytea.
    """
    if column.type_oid != _BYTEA_OID:
        raise WrongObjectType(
            f"independent_varname: the column {column.name!r} is of type {column.type}; "
            "allowed: bytea, as it is images that are read",
            hint="cerebro.cerebro_pack packs arrays of numbers, cerebro.cerebro_pack_columns columns of single values",
        )
    return ImageInput(column, "", _SMALLINT_OID, image.shape, image=image.named(column.name))


def array_cast(column: Column) -> tuple[str, int] | None:
    """The cast and the type of elements that make a column readable; None if it is no array of numbers."""
    if not column.is_array or column.element_oid is None:
        return None
    if column.element_oid in _SENT_OIDS:
        return ("" if column.type == column.base_type else column.cast), column.element_oid
    if column.element_category != "N" or column.element_oid == _MONEY:
        return None
    return "double precision[]", _FLOAT8_OID


# -- SQL of arrays ---------------------------------------------------------------------------------
def sent_array(value: str) -> str:
    """SQL of an array in its binary form."""
    # A NULL must not be skipped in silence: the empty bytes are found by their length.
    return f"COALESCE(pg_catalog.array_send({value}), ''::bytea)"


def array_shape(value: str) -> str:
    """SQL of the sizes of an array, as an array."""
    return (
        f"(SELECT pg_catalog.array_agg(pg_catalog.array_length({value}, d) ORDER BY d) "
        f"FROM pg_catalog.generate_series(1, pg_catalog.array_ndims({value})) d)"
    )


def array_fault(value: str, shape: Sequence[int], divisor: str) -> str:
    """SQL of what is wrong with an array that shall have a shape, and be divided: a word, or NULL."""
    differs = [f"pg_catalog.array_ndims({value}) IS DISTINCT FROM {len(shape)}"]
    differs += [
        f"pg_catalog.array_length({value}, {axis}) IS DISTINCT FROM {int(size)}"
        for axis, size in enumerate(shape, 1)
    ]
    return (
        f"CASE WHEN {value} IS NULL THEN 'null' WHEN {' OR '.join(differs)} THEN 'shape' "
        f"WHEN EXISTS (SELECT 1 FROM unnest({value}) AS e(v) WHERE e.v IS NULL) "
        f"THEN 'element' WHEN EXISTS (SELECT 1 FROM unnest({value}) AS e(v) "
        f"WHERE NOT pg_catalog.abs(e.v::double precision / {divisor}) < {FLOAT32_LIMIT}) "
        "THEN 'value' END"
    )
