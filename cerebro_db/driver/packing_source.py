"""What is packed: which columns, of which kind, and what the rows of the source turn out to be."""

from __future__ import annotations

from dataclasses import dataclass, replace

from cerebro_db.database.names import MAX_IDENTIFIER_BYTES
from cerebro_db.database.packed import PackedTable
from cerebro_db.database.relations import Column, Relation
from cerebro_db.errors import InvalidArgument, InvalidData, WrongObjectType
from cerebro_db.training.buffers import WIRE_DTYPES

_INTEGERS = {20, 21, 23}
_FLOATS = {700, 701, 1700}
_MONEY = 790
# Text-like, boolean, dates and times, enumerations.
_CLASS_CATEGORIES = {"S", "B", "D", "T", "E"}
_FLOAT8_OID = 701


@dataclass(frozen=True)
class Feature:
    """The independent variable.

    Attributes:
        column: of the source.
        cast: SQL type that it is read as; empty if it can be read as it is.
        element_oid: of what is then read.
        shape: of every row; empty until known.
    """

    column: Column
    cast: str
    element_oid: int
    shape: tuple[int, ...] = ()


@dataclass(frozen=True)
class Target:
    """The dependent variable.

    Attributes:
        column: of the source.
        kind: ``class`` or ``float``.
        cast: SQL type that it is read as.
        shape: of one target; ``()`` for a class or a number.
        values: all class values, as the server's text of an array.
        found: how many classes there are.
        null_id: which of them is NULL, if one is.
        num_classes: what the caller wants, at least ``found``.
    """

    column: Column
    kind: str
    cast: str
    shape: tuple[int, ...] = ()
    values: str | None = None
    found: int = 0
    null_id: int | None = None
    num_classes: int = 0

    @property
    def is_class(self) -> bool:
        """Whether the target is a class label."""
        return self.kind == "class"

    @property
    def wire_shape(self) -> tuple[int, ...]:
        """The shape in which a worker reads a float target: always an array."""
        return self.shape or (1,)

    def with_classes(self, values: str, found: int, has_null: bool, wanted: int | None) -> Target:
        """The target with the classes of a training source."""
        if wanted is not None and wanted < found:
            raise InvalidArgument(
                f"num_classes: got {wanted}; allowed: at least {found}, "
                f"as the column {self.column.name!r} has so many classes"
            )
        null_id = found - 1 if has_null else None
        return replace(
            self, values=values, found=found, null_id=null_id, num_classes=wanted or found
        )

    def like(self, training: PackedTable) -> Target:
        """The target with the classes of a packed training table."""
        model = training.target
        if model.kind != self.kind or (self.is_class and model.category != self.column.category):
            raise InvalidData(
                f"the column {self.column.name!r} of type {self.column.type} holds {self.kind} "
                f"targets; those of {training.relation.name} are {model.kind} targets "
                f"of type {model.type}"
            )
        known = model.class_values[: model.classes_found]
        return replace(
            self,
            values=model.class_array,
            found=model.classes_found,
            null_id=known.index(None) if None in known else None,
            num_classes=model.num_classes,
        )


def feature_of(column: Column) -> Feature:
    """How the independent variable is read.

    Raises:
        WrongObjectType: the column is no array of numbers.
    """
    cast = _array_cast(column)
    if cast is None:
        raise WrongObjectType(
            f"independent_varname: the column {column.name!r} is of type {column.type}; "
            "allowed: arrays of smallint, integer, bigint, real, double precision or numeric"
        )
    return Feature(column, *cast)


def target_of(column: Column) -> Target:
    """How the dependent variable is read: integers, text and the like are classes.

    Raises:
        WrongObjectType: the column is neither of classes nor of numbers.
    """
    if column.type_oid in _FLOATS:
        return Target(column, "float", "double precision")
    if column.type_oid in _INTEGERS or column.category in _CLASS_CATEGORIES:
        return Target(column, "class", _cast(column))
    cast = _array_cast(column)
    if cast is None:
        raise WrongObjectType(
            f"dependent_varname: the column {column.name!r} is of type {column.type}; allowed: "
            "integers, text, boolean, dates and times and enumerations for classes, real, "
            "double precision, numeric and arrays of numbers for float targets"
        )
    return Target(column, "float", cast[0] or _cast(column))


def check_names(x: str, y: str) -> None:
    """Refuse columns whose names would collide in the packed table, or grow too long."""
    names = [
        "partition_key",
        "buffer_id",
        "num_rows",
        "segment_key",
        x,
        f"{x}_shape",
        y,
        f"{y}_shape",
    ]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise InvalidArgument(
            f"got the columns {y!r} and {x!r}; they would make two columns named {twice[0]!r} "
            "in the packed table",
            hint="rename the column, or select it under another name in a view",
        )
    for name in (f"{x}_shape", f"{y}_class_values"):
        if len(name.encode()) > MAX_IDENTIFIER_BYTES:
            raise InvalidArgument(
                f"the name {name!r}, which packing needs, has {len(name.encode())} bytes; "
                f"allowed: {MAX_IDENTIFIER_BYTES}",
                hint="select the column under a shorter name in a view",
            )


def check_source(relation: Relation) -> None:
    """Refuse a source that is itself packed, which is an easy mistake."""
    if relation.has("partition_key") and relation.has("buffer_id"):
        raise WrongObjectType(
            f"source_table: {relation.name} is packed already; allowed: a table with a row "
            "for each example"
        )


def _array_cast(column: Column) -> tuple[str, int] | None:
    """The cast and the type of elements that make a column readable; None if it is no array."""
    if not column.is_array or column.element_oid is None:
        return None
    if column.element_oid in WIRE_DTYPES:
        cast = "" if column.type == column.base_type else _cast(column)
        return cast, column.element_oid
    if column.element_category != "N" or column.element_oid == _MONEY:
        return None
    return "double precision[]", _FLOAT8_OID


def _cast(column: Column) -> str:
    """The type below all domains, as text of a statement with parameters."""
    return column.base_type.replace("%", "%%")
