"""Kinds of inputs: what a network gets of each row, the SQL that reads it, and the words where a row is refused.

A column of a packed table is a :class:`Block`: an input, or a target (``packing/targets.py``). It is read in two steps:
``value`` is an expression over the rows, and ``sent`` makes of such a value the bytes that workers parse; ``packed`` makes
of those of a whole buffer what is stored. ``fault`` finds what is wrong with a value where workers refuse it, ``refusal``
says so. Packing, evaluation and prediction use the same blocks, so there is one gate for a value.

A new kind of input is a subclass of :class:`Input`. One that a column's type decides is registered here, and is then read by
all that take a list of columns; one with an encoding comes from a subclass of ``Recorded``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace as column_replaced
from typing import Any, ClassVar, Self, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from cerebro_db.columns.encoded import Encoding, Recorded, Run
from cerebro_db.columns.images import ImageEncoding
from cerebro_db.columns.numbers import FLOAT32_LIMIT, number
from cerebro_db.columns.values import FLOATS, INTEGERS, Column
from cerebro_db.errors import WrongObjectType
from cerebro_db.postgres.names import literal, quote, shown_identifier

_MONEY = 790
_FLOAT8_OID, _FLOAT8_ARRAY_OID, _SMALLINT_OID, _BIGINT_OID, _BYTEA_OID = 701, 1022, 21, 20, 17
# Of elements that workers read as they are: smallint, integer, bigint, real, double precision.
_SENT_OIDS = frozenset({21, 23, 20, 700, 701})
# The server returns at most 1664 values a row.
_MOST_AGGREGATES = 400
CAST_HINT = "cast the column in a view, as in SELECT value::real AS value"

NULL, ELEMENT, VALUE, SHAPE = "null", "element", "value", "shape"
ROLE = "independent_varname"


class Block(Struct, frozen=True):
    """A column of a packed table: an array of numbers of each row.

    Attributes:
        column: of the source, or what stands for the columns that are encoded.
        cast: SQL type that it is read as; empty if it can be read as it is.
        shape: of every row; empty until known, and of single numbers.
        divisor: the numbers are divided by it.
        dtype: NumPy's name of the type in which they are stored.
        is_class: whether they are numbers of classes.
    """

    dtype: ClassVar[str] = "float32"
    is_class: ClassVar[bool] = False

    column: Column
    cast: str = ""
    shape: tuple[int, ...] = ()
    divisor: float = 1.0

    @property
    def name(self) -> str:
        """The column of the packed table."""
        return self.column.name

    # -- SQL over the rows of the source -----------------------------------------------------------
    def check_rows(self, run: Run, rows: str, alias: str) -> None:
        """Refuse rows of another table than that of training, where what is read of them no longer shows what is wrong.

        Args:
            run: returns the rows of a statement.
            rows: what stands behind FROM, with that alias.

        Raises:
            InvalidData: there is such a row.
        """

    def value(self, alias: str) -> str:
        """SQL of what is read of a row, over an alias of the source."""
        name = f"{alias}.{quote(self.column.name)}"
        return f"{name}::{self.cast}" if self.cast else name

    def readings(self, alias: str) -> list[tuple[str, str]]:
        """The columns, each with SQL of what is read of it."""
        return [(self.column.name, self.value(alias))]

    def gathered(self, alias: str, place: int) -> str:
        """SQL of the bytes of a row on their way to a worker.

        Args:
            alias: of the source.
            place: of the block in the packed table, which names what ``joined`` has joined.
        """
        return self.sent(self.value(alias))

    def joined(self, alias: str, place: int) -> str:
        """SQL of what is joined to the rows for that."""
        return ""

    def sent(self, value: str) -> str:
        """SQL of the bytes of a value; empty for NULL."""
        return sent_array(value)

    def packed(self, data: str, positions: str) -> str:
        """SQL of the bytes of a buffer, out of those of its rows.

        Args:
            data: of all rows, concatenated, beside their ``r.keys``.
            positions: of each row in the buffer.
        """
        whole = str(self.column.is_whole).lower()
        return (
            f"cerebro._pack_arrays({data}, r.keys, {positions}, {array_literal(self.shape or (1,))}, "
            f"{number(self.divisor)}, {literal(self.column.name)}, {whole})"
        )

    # -- what is wrong with a row ------------------------------------------------------------------
    @property
    def known_shape(self) -> str | None:
        """SQL of the shape of every row; None where the first row tells it."""
        return None

    def shape_of(self, value: str) -> str:
        """SQL of the shape of a value; of NULL where the fault says all."""
        return array_shape(value)

    def fault(self, value: str) -> str:
        """SQL of what is wrong with a value: ``null``, ``shape``, ``element``, ``value``, or words for it."""
        # Where no row has a shape, any shape finds the first row.
        return array_fault(value, self.shape or (1,), number(self.divisor))

    def refusal(
        self, fault: str, got: Sequence[int] | None, label: str | None, of: str
    ) -> tuple[str, str]:
        """The words behind the name of the column, and the hint.

        Args:
            fault: as found.
            got: the shape of the row, None where it has no element.
            label: the value as text, of a target.
            of: whose shape is wanted.
        """
        return self._reason(fault, got, of), self._remedy(fault, got)

    def _reason(self, fault: str, got: Sequence[int] | None, of: str) -> str:
        if fault == NULL:
            return "is NULL; allowed: no NULL"
        if fault == ELEMENT:
            return "holds a NULL; allowed: no NULL"
        if fault == VALUE:
            return (
                "holds a value that is NaN, infinite or too large; allowed: finite float32 numbers"
            )
        if fault != SHAPE:
            return fault
        if got is None:
            return "is an empty array; allowed: at least one element"
        return f"has shape {tuple(got)}; allowed: {self.shape or (1,)}, {of}"

    def _remedy(self, fault: str, got: Sequence[int] | None) -> str:
        name = shown_identifier(self.column.name)
        if fault == NULL or (fault == ELEMENT and not self.column.is_array):
            return without_nulls([self.column.name])
        if fault == ELEMENT:
            return f"a view can replace it: SELECT array_replace({name}, NULL, 0)"
        if fault == VALUE:
            nan = f"'NaN' <> ALL ({name})" if self.column.is_array else f"{name} <> 'NaN'"
            return f"{_without(nan)}; infinite and too large values can be replaced in a view, too"
        if got is None:
            return _without(f"array_length({name}, 1) > 0")
        sizes = enumerate(self.shape or (1,), 1)
        return _without(" AND ".join(f"array_length({name}, {n}) = {size}" for n, size in sizes))


def without_nulls(names: Sequence[str]) -> str:
    """The hint where one of these columns is NULL."""
    return _without(" AND ".join(f"{shown_identifier(name)} IS NOT NULL" for name in names))


def _without(condition: str) -> str:
    return f"leave such rows out in a view: SELECT ... WHERE {condition}"


class Input(Block, frozen=True, kw_only=True):
    """An input of a network.

    Attributes:
        element_oid: type of the elements that are sent.
        is_copy: whether the column holds what was read of another one.
        is_wide: whether a copy of the column is stored uncompressed.
        is_enough: whether a network may have no other input.
        can_be_damaged: whether rows may be left out where they cannot be read.
    """

    is_wide: ClassVar[bool] = True
    is_enough: ClassVar[bool] = True
    can_be_damaged: ClassVar[bool] = False

    element_oid: int = _FLOAT8_OID
    is_copy: bool = False

    @classmethod
    def of(cls, column: Column) -> Self | None:
        """The input that a column is by its type; None where it is another kind."""
        return None

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

    def divided(self, divisor: float) -> Self:
        """The input whose numbers are divided."""
        return replace(self, divisor=divisor)

    def limited(self, most_pixels: Callable[[], int]) -> Self:
        """The input within the bounds of settings, which are looked up where it has any.

        Args:
            most_pixels: of an image.
        """
        return self

    def value(self, alias: str) -> str:
        """SQL of what is read of a row, over an alias of the source or its copy."""
        return super().value(alias) if self.is_copy else self.expression(alias)

    def expression(self, alias: str) -> str:
        """SQL of what is read of a row of the source."""
        return super().value(alias)

    def copied(self, name: str) -> Self:
        """The input whose values lie in a column of a copy."""
        column = column_replaced(self.column, name=name)
        return replace(self, column=column, cast="", is_copy=True)

    def damage(self, value: str) -> str:
        """SQL of why a row is left out; NULL where it is not."""
        return "NULL::text"


# The kinds of inputs that the type of a column decides, in the order in which they are tried.
INPUTS: list[type[Input]] = []
_I = TypeVar("_I", bound=type[Input])


def by_type(kind: _I) -> _I:
    """Register a kind of input that the type of its column decides; a decorator."""
    INPUTS.append(kind)
    return kind


def input_of(column: Column, role: str = ROLE, *, is_only: bool = True) -> Input:
    """The input that a column is by its type.

    Args:
        column: of the source.
        role: the name of the argument, for messages.
        is_only: whether there is no other input.

    Raises:
        WrongObjectType: there is no such kind.
    """
    for kind in INPUTS:
        found = kind.of(column) if kind.is_enough or not is_only else None
        if found is not None:
            return found
    if is_only:
        raise WrongObjectType(
            f"{role}: the column {column.name!r} is of type {column.type}; "
            "allowed: arrays of smallint, integer, bigint, real, double precision or numeric",
            hint="single values are packed with cerebro.cerebro_pack_columns, images with cerebro.cerebro_pack_images",
        )
    raise WrongObjectType(
        f"{role}: the column {column.name!r} is of type {column.type}; allowed: smallint, "
        "integer, bigint, real, double precision or numeric, and arrays of these",
        hint=CAST_HINT,
    )


@by_type
class NumberInput(Input, frozen=True, kw_only=True):
    """A number, as an array of one."""

    is_wide: ClassVar[bool] = False
    is_enough: ClassVar[bool] = False

    @classmethod
    def of(cls, column: Column) -> Self | None:
        """The input of a column of numbers."""
        if column.type_oid in INTEGERS:
            return cls(column, "bigint", element_oid=_BIGINT_OID)
        return cls(column, "double precision") if column.type_oid in FLOATS else None

    def expression(self, alias: str) -> str:
        """SQL of the array."""
        return f"ARRAY[{super().expression(alias)}]"


@by_type
class ArrayInput(Input, frozen=True, kw_only=True):
    """An array of numbers."""

    @classmethod
    def of(cls, column: Column) -> Self | None:
        """The input of a column of arrays of numbers."""
        cast = array_cast(column)
        return None if cast is None else cls(column, cast[0], element_oid=cast[1])


class EncodedInput(Input, frozen=True, kw_only=True):
    """Several columns, encoded."""

    is_wide: ClassVar[bool] = False

    encoding: Encoding

    @property
    def recorded(self) -> Encoding:
        """The encoding."""
        return self.encoding

    @property
    def _own(self) -> Encoding:
        return self.encoding.part(self.column.name)

    @property
    def sources(self) -> tuple[str, ...]:
        """The columns of the encoding."""
        return tuple(self._own.names)

    @property
    def known_shape(self) -> str:
        """SQL of the shape of every row."""
        return array_literal((self._own.width,))

    def column_of(self, place: int) -> str:
        """Name of the column that a feature comes from."""
        return self._own.column_of(place)

    def expression(self, alias: str) -> str:
        """SQL of the features of all columns."""
        return self._own.expression(alias)

    def check_rows(self, run: Run, rows: str, alias: str) -> None:
        """Refuse values that the features of a column do not hold."""
        checked = [(one, sql) for one in self._own.columns if (sql := one.largest(alias))]
        for first in range(0, len(checked), _MOST_AGGREGATES):
            part = checked[first : first + _MOST_AGGREGATES]
            listed = ", ".join(f"{sql} AS c{place}" for place, (_, sql) in enumerate(part))
            (found,) = run(f"SELECT {listed} FROM {rows}")
            for (one, _), largest in zip(part, found, strict=True):
                if largest is not None:
                    one.check(run, rows, alias, largest)

    def readings(self, alias: str) -> list[tuple[str, str]]:
        """The columns, each with SQL of its features."""
        return self._own.readings(alias)

    def fault(self, value: str) -> str:
        """SQL of what is wrong with the features; behind ``value`` the place of the first that is too large."""
        found = super().fault(value)
        return (
            f"CASE ({found}) WHEN '{VALUE}' THEN '{VALUE} ' || (SELECT pg_catalog.min(g.i) FROM "
            f"pg_catalog.generate_subscripts({value}, 1) AS g(i) WHERE NOT {_is_held(f'({value})[g.i]', number(self.divisor))}) "
            f"ELSE ({found}) END"
        )

    def refusal(
        self, fault: str, got: Sequence[int] | None, label: str | None, of: str
    ) -> tuple[str, str]:
        """The words behind the name of the input, and the hint: they name the column of a feature."""
        word, _, place = fault.partition(" ")
        if word != VALUE or not place.isdecimal():
            return super().refusal(fault, got, label, of)
        name = self.column_of(int(place) - 1)
        return (
            f"holds a value of the column {name!r} that is too large once it is encoded; allowed: finite float32 numbers",
            f"such values of {shown_identifier(name)} can be replaced in a view, or such rows left out",
        )


class ImageInput(Input, frozen=True, kw_only=True):
    """An image."""

    can_be_damaged: ClassVar[bool] = True

    image: ImageEncoding

    @property
    def recorded(self) -> ImageEncoding:
        """Format and shape."""
        return self.image

    def limited(self, most_pixels: Callable[[], int]) -> Self:
        """The input with a bound of pixels, beyond which images are refused."""
        return replace(self, image=replace(self.image, max_pixels=most_pixels()))

    def sent(self, value: str) -> str:
        """SQL of the bytes of an array of its values."""
        return self.image.sent(value)

    @property
    def known_shape(self) -> str:
        """The shape that was asked for."""
        return self.image.shape_sql

    def shape_of(self, value: str) -> str:
        """SQL of NULL, as the fault of an image says all."""
        return "NULL::integer[]"

    def fault(self, value: str) -> str:
        """SQL of what is wrong with an image."""
        return self.image.fault(value)

    def damage(self, value: str) -> str:
        """SQL of why it cannot be read."""
        return self.image.fault(value)

    def _remedy(self, fault: str, got: Sequence[int] | None) -> str:
        if fault == NULL:
            return super()._remedy(fault, got)
        return (
            "store that image anew, or leave its row out with on_error := 'ignore'; image_shape and "
            "image_format must be those of the stored bytes"
        )


def encoded_inputs(encoding: Encoding) -> tuple[EncodedInput, ...]:
    """The inputs that several columns make together."""
    kind = "double precision[]"
    return tuple(
        EncodedInput(
            Column(part, kind, _FLOAT8_ARRAY_OID, kind, "A", _FLOAT8_OID, "N"), encoding=encoding
        )
        for part in encoding.parts
    )


def image_input(column: Column, image: ImageEncoding) -> ImageInput:
    """The input that a column of images is.

    Raises:
        WrongObjectType: the column is not of type bytea.
    """
    if column.type_oid != _BYTEA_OID:
        raise WrongObjectType(
            f"{ROLE}: the column {column.name!r} is of type {column.type}; "
            "allowed: bytea, as it is images that are read",
            hint="cerebro.cerebro_pack packs arrays of numbers, cerebro.cerebro_pack_columns columns of single values",
        )
    image = image.named(column.name)
    return ImageInput(column, shape=image.shape, element_oid=_SMALLINT_OID, image=image)


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
def array_literal(sizes: Sequence[Any]) -> str:
    """SQL of an array of sizes."""
    return "'{" + ",".join(str(int(size)) for size in sizes) + "}'::integer[]"


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
        f"WHERE NOT {_is_held('e.v::double precision', divisor)}) THEN 'value' END"
    )


def _is_held(value: str, divisor: str) -> str:
    """SQL condition: float32 holds a number that is divided; NULL of NULL."""
    return f"pg_catalog.abs({value} / {divisor}) < {FLOAT32_LIMIT}"
